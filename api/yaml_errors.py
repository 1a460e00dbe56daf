"""What PyYAML raises for a text that it cannot make values of.

Beside its own errors it lets through what Python raises for a scalar that only looks like one of a type:
`2026-13-45` (a date), an integer of 5,000 digits, `!!bool perhaps`.
"""

import yaml

NOT_YAML = (
    yaml.YAMLError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""For `except` around the parser alone."""
