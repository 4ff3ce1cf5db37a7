"""Makes device.json, device.txt and calibration.json of what checks/device.sh has left in a folder. Its own file so that a test
can feed it. Usage: device_report.py FOLDER DEVICE STARTED; exit code 1 when something failed."""
import json
import os
import sys
import time


def lines(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()


def parts(folder):
    found = []
    for line in lines(os.path.join(folder, "facts.tsv")):
        part, name, state, seconds, words = line.split("\t", 4)
        found.append({"part": part, "name": name, "state": state.split(":")[0], "why": state.partition(": ")[2] or words,
                      "seconds": float(seconds)})
    return found


def failed_tests(folder):
    failed = []
    for name in ("gtest-ops.json", "gtest-golden.json"):
        text = "\n".join(lines(os.path.join(folder, name)))
        for suite in json.loads(text).get("testsuites", []) if text else []:
            failed += [f"{suite['name']}.{test['name']}" for test in suite["testsuite"] if test.get("failures")]
    return failed


def kernels(folder):
    """Measurements with their share of what was measured as the device's most."""
    rows = [json.loads(line) for line in lines(os.path.join(folder, "kernels.jsonl")) if line.startswith("{")]
    rows = [row for row in rows if "op" in row]
    rates = [row["flops"] / row["seconds"] for row in rows if row["shape"] == "peak" and row["flops"] > 0]
    speeds = [row["bytes"] / row["seconds"] for row in rows if row["shape"] == "peak" and row["flops"] == 0]
    peak = {"bf16_flops_per_second": max(rates, default=0), "bytes_per_second": max(speeds, default=0)}
    table = []
    for row in rows:
        if row["shape"] == "peak":
            continue
        most = peak["bf16_flops_per_second"] if row["flops"] > 0 else peak["bytes_per_second"]
        done = (row["flops"] if row["flops"] > 0 else row["bytes"]) / row["seconds"]
        table.append({**row, "bound": "product" if row["flops"] > 0 else "bandwidth", "per_second": done,
                      "share": done / most if most > 0 else None})
    return peak, table


def training(folder):
    found = {}
    for name in sorted(os.listdir(folder)):
        if name.startswith("bench-") and name.endswith(".log"):
            text = "\n".join(lines(os.path.join(folder, name)))
            start = text.find("{")
            try:
                found[name[6:-4]] = json.loads(text[start:]) if start >= 0 else None
            except json.JSONDecodeError:
                found[name[6:-4]] = None
    return found


def calibration(device, peak, table):
    """For eaglet plan device --calibration: what was measured in place of what is assumed."""
    facts = {"device": next((n for n in ("h100", "h200", "b200", "a100", "4090") if n in device.lower()), device)}
    if peak["bf16_flops_per_second"] > 0:
        facts["gemm_tflops"] = round(peak["bf16_flops_per_second"] / 1e12, 1)
        shares = [r["share"] for r in table if r["shape"] == "reference" and r["op"].startswith("attention") and "bf16" in r["op"]]
        if shares:
            facts["attention_share"] = round(sum(shares) / len(shares), 3)
    return facts


def text_of(result):
    rows = [f"device: {result['device']}", f"{result['seconds']} s in all", ""]
    for part in result["parts"]:
        rows.append(f"{part['state']:8} {part['part']:10} {part['name']:10} {part['seconds']:8.2f} s  {part['why']}")
    if result["failed_tests"]:
        rows += ["", "failed tests:"] + [f"  {name}" for name in result["failed_tests"]]
    peak = result["peak"]
    if peak["bf16_flops_per_second"] > 0:
        rows += ["", f"bf16 products {peak['bf16_flops_per_second'] / 1e12:.1f} TFLOP/s, copies {peak['bytes_per_second'] / 1e12:.3f} TB/s", ""]
    for row in result["kernels"]:
        unit = "TFLOP/s" if row["bound"] == "product" else "TB/s"
        share = "" if row["share"] is None else f"{100 * row['share']:6.1f} % of {row['bound']}"
        rows.append(f"{row['shape']:10} {row['op']:34} {1e3 * row['seconds']:10.4f} ms {row['per_second'] / 1e12:9.3f} {unit:8} {share}")
    for shape, run in result["training"].items():
        rows.append(f"bench train {shape}: {json.dumps(run)}")
    return "\n".join(rows) + "\n"


def main():
    folder, device, started = sys.argv[1:4]
    peak, table = kernels(folder)
    result = {"schema": 1, "device": device, "driver": (lines(os.path.join(folder, "smi.log")) or [None])[0],
              "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "seconds": int(time.time()) - int(started),
              "parts": parts(folder), "failed_tests": failed_tests(folder), "peak": peak, "kernels": table,
              "training": training(folder)}
    with open(os.path.join(folder, "device.json"), "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
    with open(os.path.join(folder, "calibration.json"), "w", encoding="utf-8") as file:
        json.dump(calibration(device, peak, table), file)
    text = text_of(result)
    with open(os.path.join(folder, "device.txt"), "w", encoding="utf-8") as file:
        file.write(text)
    print(text, end="")
    failed = [f"{p['part']} {p['name']}" for p in result["parts"] if p["state"] == "failed"]
    print("failed: " + ", ".join(failed) if failed else "passed: " + ", ".join(
        sorted({p["part"] for p in result["parts"] if p["state"] == "passed"})) if result["parts"] else "nothing ran")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
