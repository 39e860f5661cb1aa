"""check_includes.py <checkout>: no header of the library includes one of a layer above its own.

The layers, and what each may include beside itself, config.hpp and the standard library, are below. Further rules:
own headers are included as <peerless/...> and exist; a .hpp includes no .cuh and no CUDA or NCCL header; `core`,
`select` and `bootstrap` hold no .cuh; there are no cycles among headers.
"""
import pathlib
import re
import sys

MAY_INCLUDE = {
    "config": set(),
    "core": {"config"},
    "protocol": {"config", "core"},
    "select": {"core"},
    "bootstrap": {"core"},
    "device": {"protocol", "core"},
    "topology": {"protocol", "core"},
    "transport": {"protocol", "topology", "bootstrap", "device", "core"},
    "communicator": {"select", "transport", "device", "topology", "bootstrap", "protocol", "core"},
}
# Single headers that a layer may include although the rest of their layer is closed to it: a transport states the
# rows that seed the selection table.
ALSO = {"transport": {"peerless/select/table.hpp", "peerless/select/plan.hpp"}}
UMBRELLAS = {"peerless/peerless.hpp", "peerless/peerless.cuh"}
NO_KERNELS = {"core", "select", "bootstrap"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CUDA = re.compile(r"^(cuda|cublas|cooperative_groups|nccl|nvml|nvtx|cub/|thrust/|curand|device_launch|vector_types)")


def layer_of(name):
    """The layer of a header given as peerless/...: its folder, or its stem where it lies at the top."""
    parts = pathlib.PurePosixPath(name).parts[1:]
    return parts[0] if len(parts) > 1 else pathlib.PurePosixPath(parts[0]).stem


def included(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def cycles(graph):
    """One list of names for each header that can reach itself first found."""
    state, found = {}, []

    def visit(name, trail):
        state[name] = "open"
        for target in sorted(graph.get(name, ())):
            if state.get(target) == "open":
                found.append(trail[trail.index(target):] + [target] if target in trail else [name, target])
            elif target not in state:
                visit(target, trail + [target])
        state[name] = "done"

    for name in sorted(graph):
        if name not in state:
            visit(name, [name])
    return found


def violations(include_dir):
    """Texts, one a violation, for the headers under include_dir/peerless."""
    root = pathlib.Path(include_dir)
    found, graph = [], {}
    for path in sorted((root / "peerless").rglob("*")):
        if path.suffix not in (".hpp", ".cuh"):
            continue
        name = path.relative_to(root).as_posix()
        layer = layer_of(name)
        graph[name] = set()
        if name in UMBRELLAS:
            allowed = None
        elif layer in MAY_INCLUDE:
            allowed = MAY_INCLUDE[layer] | {layer, "config"}
        else:
            found.append(f"{name}: layer '{layer}' is not in the list of layers")
            continue
        if path.suffix == ".cuh" and layer in NO_KERNELS:
            found.append(f"{name}: {layer} holds no .cuh")
        for number, quote, target in included(path):
            where = f"{name}:{number}"
            if quote == '"':
                found.append(f'{where}: "{target}": own headers are included as <peerless/...>')
            elif target.startswith("peerless/"):
                if not (root / target).exists():
                    found.append(f"{where}: <{target}> does not exist")
                    continue
                graph[name].add(target)
                if path.suffix == ".hpp" and target.endswith(".cuh"):
                    found.append(f"{where}: a .hpp includes <{target}>")
                if target in UMBRELLAS and name not in UMBRELLAS:
                    found.append(f"{where}: <{target}> is for users")
                elif allowed is not None and layer_of(target) not in allowed and target not in ALSO.get(layer, ()):
                    found.append(f"{where}: {layer} must not include {layer_of(target)} (<{target}>)")
            elif path.suffix == ".hpp" and CUDA.match(target):
                found.append(f"{where}: a .hpp includes <{target}>")
    found += [f"cycle: {' -> '.join(names)}" for names in cycles(graph)]
    return found


def main():
    include_dir = pathlib.Path(sys.argv[1]) / "include"
    found = violations(include_dir)
    for text in found:
        print(text)
    print(f"{len(found)} violation(s) of the include direction")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
