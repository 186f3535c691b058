"""The screen: everything that uses Textual."""
