"""symbols.py <nm> <library> <library>: the libraries define no symbol of peerless in common, and each defines some."""
import subprocess
import sys


def symbols(nm, library):
    output = subprocess.run([nm, "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1] for line in output.splitlines() if "8peerless" in line}


def main():
    nm, first, second = sys.argv[1:]
    of_first, of_second = symbols(nm, first), symbols(nm, second)
    print(f"{len(of_first)} and {len(of_second)} symbols of peerless")
    if len(of_first) < 10 or len(of_second) < 10:
        sys.exit("too few symbols: the test would prove nothing")
    common = sorted(of_first & of_second)
    for name in common:
        print("in both:", name)
    sys.exit(1 if common else 0)


if __name__ == "__main__":
    main()
