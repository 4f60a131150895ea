select is_uncompiled, is_behind from relay.restored
