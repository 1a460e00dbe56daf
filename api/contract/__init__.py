"""The contract of the native API as code: what it says, what breaks it, and its messages."""
