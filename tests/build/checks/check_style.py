"""check_style.py <checkout>: rules of form.

Headers of the library: at most 400 lines of at most 120 columns, `#pragma once` first, a comment before it, macros
only in config.hpp, the namespace opened and closed by its macros, nothing that a supported compiler lacks or that
needs run-time type information. Everything of ours: no tabs or blanks at the end of lines, no notes to be done later.
.ci/run: its last line is a line of README.md. Code in README.md and in the pages beside the headers comes from the
examples.
"""
import pathlib
import re
import sys

MAX_LINES = 400
MAX_COLUMNS = 120
TEXT = {".hpp", ".cuh", ".cpp", ".cu", ".inc", ".py", ".cmake", ".txt", ".sh", ".md", ".pml", ".json"}
FOLDERS = ("include", "tests", "bench", "examples", "cmake", ".ci")
LATER = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b")
FORBIDDEN = {
    re.compile(r"#\s*include\s*<(format|source_location|typeinfo|any|typeindex)>"): "not in the library's headers",
    re.compile(r"\b(dynamic_cast|typeid)\b"): "needs run-time type information",
    re.compile(r"\busing\s+namespace\b"): "in a header",
}


def without_comments_and_strings(line):
    return re.sub(r'"(\\.|[^"\\])*"', '""', line).split("//")[0]


def header_violations(name, text):
    lines = text.splitlines()
    code = [without_comments_and_strings(line) for line in lines]
    if len(lines) > MAX_LINES:
        yield f"{name}: {len(lines)} lines, at most {MAX_LINES}"
    if "#pragma once" not in lines:
        yield f"{name}: no #pragma once"
    elif not lines[0].startswith("//"):
        yield f"{name}:1: starts with a comment that says what it is"
    elif any(line.strip() for line in code[: lines.index("#pragma once")]):
        yield f"{name}: code before #pragma once"
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_COLUMNS:
            yield f"{name}:{number}: {len(line)} columns, at most {MAX_COLUMNS}"
    for number, line in enumerate(code, 1):
        if name != "include/peerless/config.hpp" and re.match(r"\s*#\s*(define|undef)\b", line):
            yield f"{name}:{number}: macros belong in config.hpp"
        for pattern, why in FORBIDDEN.items():
            if pattern.search(line):
                yield f"{name}:{number}: {line.strip()}: {why}"
    opened = sum(line.startswith("PEERLESS_BEGIN_NAMESPACE") for line in code)
    closed = sum(line.startswith("PEERLESS_END_NAMESPACE") for line in code)
    plain = any(re.match(r"\s*namespace\s+peerless\b", line) for line in code)
    if name != "include/peerless/config.hpp" and (opened != closed or plain):
        yield f"{name}: namespace peerless is opened and closed by its macros"


def text_violations(name, text):
    for number, line in enumerate(text.splitlines(), 1):
        if line != line.rstrip():
            yield f"{name}:{number}: blanks at the end"
        if "\t" in line:
            yield f"{name}:{number}: a tab"
        if LATER.search(line):
            yield f"{name}:{number}: {line.strip()}"
    if text and not text.endswith("\n"):
        yield f"{name}: no newline at the end"


def readme_violations(root):
    """Code in README.md stands, line by line, in a program of examples/, which the tests build and run."""
    readme = root / "README.md"
    if not readme.exists():
        return
    lines = set()
    for path in (root / "examples").rglob("*.c*"):
        lines |= {" ".join(line.split("//")[0].split()) for line in path.read_text().splitlines()}
    for block in re.findall(r"```cpp\n(.*?)```", readme.read_text(), re.DOTALL):
        for line in block.splitlines():
            code = " ".join(line.split("//")[0].split())
            if code and code not in lines:
                yield f"README.md: in no example: {code}"


def guide_violations(root):
    """Each block of C++ or CMake in the pages beside the headers is cut from an example or from the tests' lists."""
    pieces = [path.read_text() for folder in ("examples", "tests") for path in sorted((root / folder).rglob("*"))
              if path.is_file() and (folder == "examples" or path.name == "CMakeLists.txt")]
    for page in sorted((root / "include").rglob("*.md")):
        for language, block in re.findall(r"^```(cpp|cmake)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
            if not block.strip() or not any(("\n" + block) in "\n" + piece for piece in pieces):
                yield f"{page.relative_to(root).as_posix()}: cut from nowhere: {language} {block.strip().splitlines()[:1]}"


def violations(root):
    root = pathlib.Path(root)
    paths = [path for path in sorted(root.glob("*")) if path.is_file()]
    for folder in FOLDERS:
        paths += [path for path in sorted((root / folder).rglob("*")) if path.is_file()]
    found = [*readme_violations(root), *guide_violations(root)]
    for path in paths:
        if path.suffix not in TEXT and path.parent.name != ".ci":
            continue
        name = path.relative_to(root).as_posix()
        text = path.read_text()
        found += text_violations(name, text)
        if path.suffix in (".hpp", ".cuh") and name.startswith("include/"):
            found += header_violations(name, text)
    readme, ci = root / "README.md", root / ".ci" / "run"
    if readme.exists() and ci.exists():
        command = ci.read_text().splitlines()[-1]
        if command not in readme.read_text().splitlines():
            found.append(f".ci/run: README.md has no line '{command}'")
    return found


def main():
    found = violations(sys.argv[1])
    for text in found:
        print(text)
    print(f"{len(found)} violation(s) of style")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
