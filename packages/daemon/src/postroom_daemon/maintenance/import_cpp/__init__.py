"""``postroomd import cpp``: the messages and policies of a database of the C++ system become events of the journal."""

from ..foreign_data import ImportRefused
from .run import CppImport, check_cpp, import_cpp

__all__ = ["CppImport", "ImportRefused", "check_cpp", "import_cpp"]
