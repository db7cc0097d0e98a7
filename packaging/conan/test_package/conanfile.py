"""Builds test/install/use.c with the package. It prints the version, and is linked as was asked for."""

import io
import os

from conan import ConanFile
from conan.errors import ConanException
from conan.tools.cmake import CMake, cmake_layout


class Use(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    languages = "C"
    generators = "CMakeDeps", "CMakeToolchain"

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        self.requires(self.tested_reference_str)

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def _output(self, command):
        out = io.StringIO()
        self.run(command, stdout=out, env="conanrun")
        return out.getvalue()

    def test(self):
        package = self.dependencies["kvpager"]
        program = os.path.join(self.cpp.build.bindir, "use")
        said = self._output(program)
        if said != f"kvpager {package.ref.version}\n":
            raise ConanException(f"the program prints {said!r}")
        if ("libkvpager.so" in self._output(f"ldd {program}")) != bool(package.options.shared):
            raise ConanException(f"the program is linked otherwise than with shared={package.options.shared}")
