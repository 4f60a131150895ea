"""`relay demo`: the main job on servers that it starts itself. Read `scene.py` first, which says what happens when;
`count.py` makes the sum at its end.
"""
