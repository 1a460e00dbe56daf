"""The files that describe the services of a port, found by name and by what they declare."""

from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool


class Descriptors:
    """A pool of its own: what is shown may have the names of what another module of the process registers."""

    def __init__(self, files: Iterable[FileDescriptorProto]) -> None:
        """Take `files`, each after those that it imports; one that comes again is left out."""
        self._pool = DescriptorPool()
        self._content: dict[str, bytes] = {}
        for file in files:
            if file.name not in self._content:
                self._content[file.name] = file.SerializeToString()
                self._pool.AddSerializedFile(self._content[file.name])

    def by_name(self, name: str) -> FileDescriptor:
        """Return the file `name`. Raises KeyError if there is none."""
        found: FileDescriptor = self._pool.FindFileByName(name)
        return found

    def declaring(self, symbol: str) -> FileDescriptor:
        """Return the file that declares a service, a method, a message, a field or an enum.

        Raises KeyError if there is none.
        """
        found: FileDescriptor
        try:
            found = self._pool.FindFileContainingSymbol(symbol)
        except KeyError:  # the only kind of symbol that is not found so
            found = self._pool.FindMethodByName(symbol).containing_service.file
        return found

    def extending(self, message: str, number: int) -> FileDescriptor:
        """Return the file that declares the extension `number` of a message.

        Raises KeyError if there is none.
        """
        extended = self._pool.FindMessageTypeByName(message)
        extension: Any = self._pool.FindExtensionByNumber(extended, number)  # its stub has no `file`
        found: FileDescriptor = extension.file
        return found

    def extension_numbers(self, message: str) -> list[int]:
        """Return the numbers of all extensions of a message. Raises KeyError if there is no such message."""
        extended = self._pool.FindMessageTypeByName(message)
        return sorted(field.number for field in self._pool.FindAllExtensions(extended))

    def content(self, file: FileDescriptor, seen: set[str]) -> list[bytes]:
        """Return `file` and all that it imports but for what is in `seen`, to which they are added."""
        contents = [self._content[file.name]]
        seen.add(file.name)
        for imported in file.dependencies:
            if imported.name not in seen:
                contents += self.content(imported, seen)
        return contents


def whole(file: FileDescriptor) -> list[FileDescriptorProto]:
    """Return a file after all that it imports."""
    own = FileDescriptorProto()
    file.CopyToProto(own)
    return [*(one for imported in file.dependencies for one in whole(imported)), own]


def published(file: FileDescriptor, name: str, package: str) -> FileDescriptorProto:
    """Return a file that imports nothing, under the name and in the package that the world knows."""
    shown = FileDescriptorProto()
    file.CopyToProto(shown)
    own, theirs = f".{shown.package}.", f".{package}."
    shown.name, shown.package = name, package
    for message in shown.message_type:
        _rename(message, own, theirs)
    for service in shown.service:
        for method in service.method:
            method.input_type = theirs + method.input_type.removeprefix(own)
            method.output_type = theirs + method.output_type.removeprefix(own)
    return shown


def _rename(message: DescriptorProto, own: str, theirs: str) -> None:
    for field in message.field:
        if field.type_name:
            field.type_name = theirs + field.type_name.removeprefix(own)
    for nested in message.nested_type:
        _rename(nested, own, theirs)
