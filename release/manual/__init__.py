"""The manual of the programs, made from the definitions that ``--help`` shows.

``programs`` reads a program into the model, from which the other modules write manual pages, completions and
``docs/cli.md``. Why no library does that: docs/decisions/0020-the-manual-has-its-own-generator.md.
"""
