"""Runs the test_* functions of a script side by side, each with a folder of its own, and then those that must be alone."""
import concurrent.futures
import sys
import tempfile
import time


def attempt(name, test):
    begun = time.time()
    with tempfile.TemporaryDirectory() as root:
        try:
            test(root)
            print(f"ok {name} ({time.time() - begun:.1f} s)", flush=True)
            return 0
        except Exception as error:  # pylint: disable=broad-except
            trace = error.__traceback__.tb_next
            print(f"FAILED {name}: line {trace.tb_lineno if trace else '?'}: {error}", flush=True)
            return 1


def run_tests(functions, alone):
    """`functions`: the script's globals(); `alone`: a word in the names of those that take the cores others are judged by.
    Names on the command line pick some. The exit code."""
    wanted = sys.argv[1:]
    tests = [(name, test) for name, test in functions.items() if name.startswith("test_") and (not wanted or name in wanted)]
    last = [pair for pair in tests if alone in pair[0]]
    with concurrent.futures.ThreadPoolExecutor(max_workers=4) as pool:
        results = list(pool.map(lambda pair: attempt(*pair), [pair for pair in tests if pair not in last]))
    results += [attempt(*pair) for pair in last]
    return 1 if any(results) else 0
