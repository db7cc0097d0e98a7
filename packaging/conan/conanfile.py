"""kvpager for Conan 2, from the sources that this file lies in. docs/BUILDING.md.

xxhash.h is the machine's own (Debian: libxxhash-dev): it is compiled in, and needs no package of Conan's.
"""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rm, rmdir

SOURCES = ["CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "src/*"]
LEFT_OUT = ["BUILD_TOOL", "BUILD_TESTS", "BUILD_EXAMPLES", "BUILD_FUZZ", "WERROR", "STORE", "REDIS", "LLAMA"]


class Kvpager(ConanFile):
    name = "kvpager"
    description = "Memory manager for the KV cache of large language models"
    license = ("Apache-2.0", "BSD-2-Clause")
    topics = ("llm", "kv-cache", "inference")
    package_type = "library"
    languages = "C"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False]}
    default_options = {"shared": False}

    @property
    def _root(self):
        return os.path.join(self.recipe_folder, os.pardir, os.pardir)

    def set_version(self):
        lists = load(self, os.path.join(self._root, "CMakeLists.txt"))
        self.version = re.search(r"project\(kvpager VERSION ([\d.]+)", lists).group(1)

    def export_sources(self):
        for pattern in SOURCES:
            copy(self, pattern, self._root, self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration(f"kvpager is for Linux, not {self.settings.os}: docs/BUILDING.md")

    def generate(self):
        toolchain = CMakeToolchain(self)
        for switch in LEFT_OUT:
            toolchain.cache_variables["KVP_" + switch] = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build(target="lib")

    def package(self):
        """The library that was asked for. Conan describes it: kvpager's own files for that have both."""
        CMake(self).install()
        copy(self, "*", os.path.join(self.package_folder, "share", "doc", "kvpager"),
             os.path.join(self.package_folder, "licenses"))
        for folder in ["share", "lib/cmake", "lib/pkgconfig"]:
            rmdir(self, os.path.join(self.package_folder, folder))
        rm(self, "*.a" if self.options.shared else "*.so*", os.path.join(self.package_folder, "lib"))

    def package_info(self):
        self.cpp_info.libs = ["kvpager_data", "kvpager"] if self.options.shared else ["kvpager"]
        self.cpp_info.system_libs = ["m"]
