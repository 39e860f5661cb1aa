"""compile_failures.py <include folder> <folder for sources> <compiler> <flag>...: a class that does not model the
contract of a transport does not compile where it is to be proved, and the first lines of the message name the member.

Each class of archetypes.hpp that lacks a member is compiled with its two proofs, models_transport() and the concept
alone. The classes that lack nothing are compiled in the same way and must be accepted. Calls of a communicator with a type
or an operation that nothing reduces do not compile either, and the first lines name both.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# Lines of the explaining message within which the member is named: some compilers first say how they came to the line.
FIRST_LINES = 6
# And of the concept's own message, which first says that the whole is not satisfied, with a line of source and of marks.
FIRST_LINES_OF_CONCEPT = 8

SPACE, TRANSPORT, REDUCES = "memory_space<{}>", "transport<{}>", "all_reduces<{}, float, op::sum>"
ACCEPTED = [
    (SPACE, "least_space"), (SPACE, "space_of_parts"), (TRANSPORT, "least"), (TRANSPORT, "transport_of_parts"),
    ("all_reduces<{}, std::int32_t, op::sum>", "least_that_reduces"),
]
# The proof, the class, the member that the first lines must name, and others that the errors after them name.
REFUSED = [
    (SPACE, "space_without_stream_type", "stream_type"),
    (SPACE, "space_with_pinned_stream_type", "stream_type"),
    (SPACE, "space_without_executes_at_once", "executes_at_once"),
    (SPACE, "space_with_named_executes_at_once", "executes_at_once"),
    (SPACE, "space_without_registration", "registration"),
    (SPACE, "space_with_registration_of_bytes_only", "registration"),
    (SPACE, "space_without_allocation", "allocation"),
    (SPACE, "space_with_allocation_of_words", "allocation"),
    (SPACE, "space_with_nameless_allocation", "allocation"),
    (SPACE, "space_without_state", "state"),
    (SPACE, "space_with_untyped_state", "state"),
    (SPACE, "space_without_executor_address", "executor_address"),
    (SPACE, "space_with_integer_executor_address", "executor_address"),
    (SPACE, "space_without_numa_node", "numa_node"),
    (SPACE, "space_with_numa_node_of_nothing", "numa_node"),
    (TRANSPORT, "without_name", "name"),
    (TRANSPORT, "with_numeric_name", "name"),
    (TRANSPORT, "without_space", "space"),
    (TRANSPORT, "with_space_of_less", "space", "numa_node"),
    (TRANSPORT, "without_constructor", "constructor"),
    (TRANSPORT, "with_constructor_of_another_space", "constructor"),
    (TRANSPORT, "without_seed_table", "seed_table"),
    (TRANSPORT, "with_mutable_seed_table", "seed_table"),
    (TRANSPORT, "with_seed_table_of_one_row", "seed_table"),
    (TRANSPORT, "without_refuse", "refuse"),
    (TRANSPORT, "with_boolean_refuse", "refuse"),
    (TRANSPORT, "with_throwing_refuse", "refuse"),
    (TRANSPORT, "without_finish", "finish"),
    (TRANSPORT, "with_throwing_finish", "finish"),
    (TRANSPORT, "with_finish_without_limit", "finish"),
    (TRANSPORT, "without_synchronize", "synchronize"),
    (TRANSPORT, "with_synchronize_of_nothing", "synchronize"),
    (TRANSPORT, "with_synchronize_of_another_stream", "synchronize"),
    (REDUCES, "least", "all_reduce"),
    (REDUCES, "with_all_reduce_of_counts", "all_reduce"),
    (REDUCES, "with_all_reduce_without_stream", "all_reduce"),
]
# Type and operation of a call, and how compilers write them.
CALLS = [
    ("short", "peerless::op::sum", r"= short\b", r"op::sum\b"),
    ("bool", "peerless::op::max", r"= bool\b", r"op::max\b"),
    ("long double", "peerless::op::avg", r"= long double\b", r"op::avg\b"),
    ("float", "own", r"= float\b", r"Op = own\b"),
]
LACKS = re.compile(r"error: .*\b(?:transport|space) lacks (?:its )?(\w+)")


def source_of(proof, name):
    """Line 3 is the proof that explains, line 4 the concept alone."""
    concept = proof.format("archetypes::" + name)
    return (f'#include "archetypes.hpp"\nnamespace peerless {{\n'
            f"static_assert(models_{concept}());\nstatic_assert({concept});\n}}\n")


def source_of_call(type_name, operation):
    return ("#include <peerless/communicator.hpp>\n#include <peerless/transport/host.hpp>\nstruct own {};\n"
            f"void call(peerless::communicator<peerless::host>& comm, const {type_name}* in, {type_name}* out) {{\n"
            f"  comm.all_reduce(in, out, 1, {operation}{{}}, peerless::host_stream{{}});\n}}\n")


def precompile(base, folder):
    """Compiles archetypes.hpp once for all sources; returns the flags that make the compiler take it."""
    is_clang = "clang" in subprocess.run([base[0], "--version"], capture_output=True, text=True).stdout
    made = folder / ("archetypes.pch" if is_clang else "archetypes.hpp.gch")  # g++ looks beside the source
    subprocess.run([*base, "-x", "c++-header", str(HERE / "archetypes.hpp"), "-o", str(made)], check=True, timeout=120)
    return ["-include-pch", str(made)] if is_clang else []


def compile_one(command, folder, text, name):
    source = folder / f"{name}.cpp"
    source.write_text(text)
    run = subprocess.run([*command, str(source)], capture_output=True, text=True, timeout=120,
                         env=os.environ | {"LC_ALL": "C"})
    return source, run.returncode, run.stderr.splitlines()


def complaints_about(compiled, member, others):
    source, code, lines = compiled
    if code == 0:
        return ["was accepted"]
    found = []
    named = {match.group(1) for match in map(LACKS.search, lines) if match}
    if named != {member, *others}:
        found.append(f"the errors name {sorted(named)}, not {sorted({member, *others})}")
    first = [match.group(1) for match in map(LACKS.search, lines[:FIRST_LINES]) if match]
    if member not in first:
        found.append(f"the first {FIRST_LINES} lines do not name {member}")
    at = [i for i, line in enumerate(lines) if line.startswith(f"{source}:4:") and "error:" in line]
    told = lines[at[0]:at[0] + FIRST_LINES_OF_CONCEPT] if at else []
    # A diagnostic, not the quoted source, where the names of all concepts stand in one line.
    if not any(re.search(rf"has_{member}\b", line) and re.match(r"\S+:\d+:\d+: ", line) for line in told):
        found.append(f"the first {FIRST_LINES_OF_CONCEPT} lines about the concept do not name has_{member}")
    return found


def complaints_about_call(compiled, *patterns):
    _, code, lines = compiled
    if code == 0:
        return ["was accepted"]
    first = "\n".join(lines[:FIRST_LINES])
    missing = [pattern for pattern in ("deleted", *patterns) if not re.search(pattern, first)]
    return [f"the first {FIRST_LINES} lines have no {missing}"] if missing else []


def main():
    include, folder, *compiler = sys.argv[1:]
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    base = [*compiler, "-std=c++20", f"-I{include}", f"-I{HERE}"]
    command = [*base, "-fsyntax-only"]
    with_archetypes = [*command, *precompile(base, folder)]
    n_wrong = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        cases = [(*case, None) for case in ACCEPTED] + REFUSED
        compile_case = lambda c: compile_one(with_archetypes, folder, source_of(c[0], c[1]), c[1])
        compile_call = lambda c: compile_one(command, folder, source_of_call(c[0], c[1]), "call_" + c[0].replace(" ", "_"))
        for case, compiled in zip(CALLS, pool.map(compile_call, CALLS)):
            found = complaints_about_call(compiled, *case[2:])
            if found:
                n_wrong += 1
                print(f"{case[0]}, {case[1]}: {'; '.join(found)}\n  " + "\n  ".join(compiled[2][:20]))
        for case, compiled in zip(cases, pool.map(compile_case, cases)):
            _, name, member, *others = case
            if member is None:
                found = [] if compiled[1] == 0 else ["was refused"]
            else:
                found = complaints_about(compiled, member, others)
            if found:
                n_wrong += 1
                print(f"{name}: {'; '.join(found)}\n  " + "\n  ".join(compiled[2][:20]))
    print(f"{len(ACCEPTED)} classes to be accepted, {len(REFUSED)} and {len(CALLS)} calls to be refused: {n_wrong} wrong")
    sys.exit(1 if n_wrong else 0)


if __name__ == "__main__":
    main()
