"""The versions that a process serves: opened, split between aliases, denied labels."""
