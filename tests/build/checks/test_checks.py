"""The checkers accept a clean tree, and name each violation planted in it."""
import pathlib
import sys
import tempfile
import unittest

import check_cuda_names
import check_includes
import check_style

CLEAN = {
    "include/peerless/config.hpp": "// Macros.\n#pragma once\n#define PEERLESS_X 1\n",
    "include/peerless/core/types.hpp": "// Types.\n#pragma once\n#include <vector>\n#include <peerless/config.hpp>\n",
    "include/peerless/select/table.hpp": "// Rows.\n#pragma once\n#include <peerless/core/types.hpp>\n",
    "include/peerless/select/selector.hpp": "// Pure.\n#pragma once\n#include <peerless/select/table.hpp>\n",
    "include/peerless/transport/host.hpp": "// Host.\n#pragma once\n#include <peerless/select/table.hpp>\n",
    "include/peerless/transport/shm.cuh": "// Shm, without cudaMemPrefetchAsync.\n#pragma once\n#include <cuda_runtime_api.h>\n"
    "/* cudaThreadExit */ auto t = \"cudaThreadExit\"; int clockRate = x.clock;\n",
    "include/peerless/transport/cuda_version.cuh": "// Guards.\n#pragma once\nint a = cudaMemDiscardBatchAsync;\n",
    "include/peerless/peerless.cuh": "// All.\n#pragma once\n#include <peerless/transport/shm.cuh>\n",
    "include/peerless/peerless.hpp": "// All for hosts.\n#pragma once\n#include <peerless/transport/host.hpp>\n",
    "README.md": "Build it:\n\n    x\n\ncmake --workflow\n",
    "examples/a/a.cpp": "  int a;\n  int b;\n",
    "tests/a/CMakeLists.txt": "add_test(a)\n",
    "include/peerless/a/README.md": "```cpp\n  int a;\n  int b;\n```\n```cmake\nadd_test(a)\n```\n```\nanything\n```\n",
    ".ci/run": "#!/usr/bin/env bash\ncmake --workflow\n",
}
HEADER = "// A header.\n#pragma once\n"
# (checker, file, its text, part of the message)
PLANTED = [
    (check_includes, "include/peerless/core/a.hpp", HEADER + "#include <peerless/select/table.hpp>\n", "core must not include select"),
    (check_includes, "include/peerless/select/a.hpp", HEADER + "#include <peerless/transport/host.hpp>\n", "select must not include transport"),
    (check_includes, "include/peerless/transport/a.hpp", HEADER + "#include <peerless/select/selector.hpp>\n", "transport must not include select"),
    (check_includes, "include/peerless/protocol/a.hpp", HEADER + "  #  include <peerless/transport/host.hpp>\n", "protocol must not include transport"),
    (check_includes, "include/peerless/select/a.hpp", HEADER + "#include <cuda_runtime.h>\n", "a .hpp includes <cuda_runtime.h>"),
    (check_includes, "include/peerless/transport/a.hpp", HEADER + "#include <peerless/transport/shm.cuh>\n", "a .hpp includes"),
    (check_includes, "include/peerless/core/a.cuh", HEADER, "core holds no .cuh"),
    (check_includes, "include/peerless/core/a.hpp", HEADER + "#include <peerless/core/none.hpp>\n", "does not exist"),
    (check_includes, "include/peerless/core/a.hpp", HEADER + '#include "types.hpp"\n', "own headers are included as"),
    (check_includes, "include/peerless/core/a.hpp", HEADER + "#include <peerless/peerless.hpp>\n", "is for users"),
    (check_includes, "include/peerless/core/a.hpp", HEADER + "#include <peerless/core/a.hpp>\n", "cycle: "),
    (check_includes, "include/peerless/extra/a.hpp", HEADER, "not in the list of layers"),
    (check_cuda_names, "include/peerless/transport/a.cuh", HEADER + "\nauto f = cudaMemDiscardBatchAsync;\n", "a.cuh:4: cudaMemDiscardBatchAsync: new in CUDA 13.0"),
    (check_cuda_names, "include/peerless/transport/a.cuh", HEADER + "/*\n*/ int a = cudaGraphChildGraphOwnershipMove;\n", "a.cuh:4: cudaGraphChildGraphOwnershipMove: new in CUDA 12.9"),
    (check_cuda_names, "bench/a.cu", "cudaThreadSynchronize();\n", "bench/a.cu:1: cudaThreadSynchronize: removed"),
    (check_cuda_names, "bench/a.cu", "cudaMemcpyBatchAsync(a, b);  // why\n", "changed its parameters"),
    (check_cuda_names, "tests/a.cpp", "x = properties->clockRate;\n", "clockRate: a member removed"),
    (check_cuda_names, "tests/a.cpp", "x = properties.mpsEnabled;\n", "mpsEnabled: a member new"),
    (check_cuda_names, "include/peerless/transport/a.cuh", HEADER + 'asm("ld.relaxed.sys.global.v8.b32 {%0}, [%1];");\n', "a.cuh:3: "),
    (check_cuda_names, "include/peerless/transport/a.cuh", HEADER + 'asm("max.f32 %0, %1, %2, %3;");\n', "of three"),
    (check_style, "include/peerless/core/a.hpp", HEADER + "//\n" * 399, "401 lines"),
    (check_style, "include/peerless/core/a.hpp", HEADER + "//" + "x" * 119 + "\n", "121 columns"),
    (check_style, "include/peerless/core/a.hpp", "// A header.\nint x;\n", "no #pragma once"),
    (check_style, "include/peerless/core/a.hpp", "#pragma once\n", "starts with a comment"),
    (check_style, "include/peerless/core/a.hpp", HEADER + "#define X 1\n", "macros belong"),
    (check_style, "include/peerless/core/a.hpp", HEADER + "#include <format>\n", "not in the library's headers"),
    (check_style, "include/peerless/core/a.hpp", HEADER + "auto x = dynamic_cast<int*>(y);\n", "run-time type"),
    (check_style, "include/peerless/core/a.hpp", HEADER + "namespace peerless {}\n", "opened and closed"),
    (check_style, "include/peerless/core/a.hpp", HEADER + "PEERLESS_BEGIN_NAMESPACE\n", "opened and closed"),
    (check_style, "tests/a.cpp", "// TO" + "DO: later\n", "later"),
    (check_style, "bench/a.cpp", "int x; \n", "blanks at the end"),
    (check_style, "cmake/a.cmake", "\tset(x 1)\n", "a tab"),
    (check_style, "tests/a.cpp", "int x;", "no newline"),
    (check_style, "README.md", "Nothing.\n", "has no line"),
    (check_style, "README.md", "cmake --workflow\n```cpp\nint of_no_example;\n```\n", "in no example: int of_no_example;"),
    (check_style, "include/peerless/b/README.md", "```cpp\n  int b;\n  int a;\n```\n", "b/README.md: cut from nowhere: cpp ['int b;']"),
    (check_style, "include/peerless/b/README.md", "```cpp\nint b;\n```\n", "cut from nowhere"),
    (check_style, "include/peerless/b/README.md", "```cpp\n```\n", "cut from nowhere"),
    (check_style, "include/peerless/b/README.md", "```cmake\nadd_test(b)\n```\n", "cut from nowhere: cmake"),
]


def write(root, files):
    for name, text in files.items():
        path = pathlib.Path(root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run(checker, root):
    return checker.violations(pathlib.Path(root) / "include" if checker is check_includes else root)


class Checks(unittest.TestCase):
    def test_clean_tree(self):
        with tempfile.TemporaryDirectory() as root:
            write(root, CLEAN)
            self.assertEqual(run(check_includes, root), [])
            self.assertEqual(run(check_style, root), [])
            self.assertEqual(run(check_cuda_names, root), [])

    def test_planted_violations(self):
        for checker, name, text, part in PLANTED:
            with self.subTest(name=name, part=part), tempfile.TemporaryDirectory() as root:
                write(root, CLEAN | {name: text})
                found = run(checker, root)
                self.assertEqual(len(found), 1, found)
                self.assertIn(part, found[0])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
