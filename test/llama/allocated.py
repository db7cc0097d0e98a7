"""What llama.cpp allocates for models of lib_gguf.py: the bytes of lib_engines.py, with which
`kvpager size --engine llama.cpp` is compared in the command's tests.

    allocated.py PROGRAM [--figures]

PROGRAM is kvp_llama_allocated, over the real llama.cpp. --figures prints what it says, for
lib_engines.py.
"""

import os
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))

import lib_engines as engines  # noqa: E402
import lib_gguf as gguf  # noqa: E402


def allocated(program, path, options):
    words = options.split()
    values = dict(zip(words[::2], words[1::2]))
    done = subprocess.run(
        [program, path, values["--context"], values.get("--parallel", "1"),
         values.get("--batch", "512"), str(int("--kv-unified" in words)),
         str(int("--swa-full" in words)), values.get("--dtype", "f16")],
        capture_output=True, text=True, check=False)
    return int(done.stdout) if done.returncode == 0 else done.stderr or done.returncode


def main(program, figures=False):
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        for name, (keys, tensors) in gguf.MODELS.items():
            gguf.write(path, keys, tensors)
            found = [allocated(program, path, options) for options in engines.LLAMA_OPTIONS]
            if figures:
                print(f'    "{name}": {found},')
            elif found != engines.LLAMA_SAYS[name]:
                print(f"{name}: llama.cpp allocates {found}, expected {engines.LLAMA_SAYS[name]}")
                wrong += 1
    if not figures:
        print(f"{len(gguf.MODELS)} models, {len(engines.LLAMA_OPTIONS)} ways each: {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "--figures" in sys.argv))
