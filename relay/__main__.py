"""`python -m relay` is the command `relay`."""

from relay.cli import main

if __name__ == "__main__":
    main()
