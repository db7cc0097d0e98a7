"""Keys of a config.json that are not common: counted right or refused, never wrong; and nothing is
refused, or said on stderr, for keys that mean nothing for KV."""

import json
import os

import lib_configs as configs
import lib_configs_2026 as configs_2026
from lib_kvpager import check, check_equal, directory, finish, run


def size(path, config, *options):
    """Gives the figures, or the message if the file is refused."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    done = run("size", "--json", "--model-config", path, *options)
    error = done.stderr.decode()
    if done.returncode != 0:
        check_equal(done.returncode, 1, config, error)
        check(path in error, config, error)
        return None, error
    return json.loads(done.stdout), error


def check_models(path):
    for name, config, token_bytes in configs.MODELS:
        figures, error = size(path, config)
        check_equal(figures and figures["bytes_per_token"], token_bytes, name, error)
        check_equal(error, "", name)


def check_wrong(path):
    for name, config, token_bytes in configs.WRONG:
        figures, error = size(path, config)
        check_equal(figures and figures["bytes_per_token"], token_bytes, name, error)
        if figures is None:
            check("cannot count" in error or "does not know" in error or "expected" in error
                  or "nothing says" in error
                  or "num_hidden_layers" in error, name, error)


def check_files(path):
    """Files as published, and as transformers 5 saves them; what is refused says why."""
    for name, config, context_bytes in configs_2026.FILES:
        figures, error = size(path, config, "--dtype", "bf16", "--context", configs_2026.N)
        check_equal(figures and figures["bytes_of_context"], context_bytes, name, error)
    for name, config, message in configs_2026.REFUSED:
        figures, error = size(path, config)
        check_equal(figures, None, name)
        check(message in error, name, error, "instead of", message)


def check_figures(path):
    """What was wrong beside bytes of a token."""
    figures, error = size(path, configs.SALA)
    check_equal((figures["state_layers"], figures["bytes_per_state"]),
                (24, 24 * 32 * 128 * 128 * 4), error)
    figures, error = size(path, configs.NVFP4)
    check_equal((figures["kv_dtype"], figures["weights_dtype"]), ("fp8", "nvfp4"), error)
    for more, weights, kv in [({"quant_algo": "FP8", "kv_cache_quant_algo": "NVFP4"}, "fp8", "nvfp4"),
                              ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
                                  "weights": {"num_bits": 4, "type": "int"}}}}, "int4", "bf16"),
                              ({"kv_cache_scheme": {"num_bits": 4, "type": "float",
                                                    "group_size": 16}}, None, "nvfp4")]:
        figures, error = size(path, {**configs.NVFP4, "quantization_config": more})
        check_equal((figures["weights_dtype"], figures["kv_dtype"]), (weights, kv), more, error)
    for bits, kind, options, dtype in [(8, "int", [], "int8"), (4, "float", [], None),
                                       (4, "float", ["--dtype", "bf16"], "bf16")]:
        scheme = {"kv_cache_scheme": {"num_bits": bits, "type": kind}}
        figures, error = size(path, {**configs.NVFP4, "quantization_config": scheme}, *options)
        check_equal(figures and figures["kv_dtype"], dtype, bits, kind, options, error)
        check(figures is not None or "give --dtype" in error, error)
    # experts of 4 bits in files of 8
    for more in ({"expert_dtype": "fp4"}, {}):
        for inside in ({"expert_dtype": "fp4"}, {}):
            figures, error = size(path, {**configs_2026.V4, **more, "quantization_config": {
                "quant_method": "fp8", **inside}, "vocab_size": 129280, "n_routed_experts": 256,
                "num_experts_per_tok": 6, "moe_intermediate_size": 2048})
            check_equal(figures["weights_dtype"], "mxfp4" if more or inside else "fp8", error)
    xglm = next(config for name, config, _ in configs_2026.FILES if name == "XGLM")
    for config, parameters in [(xglm, 0.56), (configs.ERNIE, 21.83), (configs.APERTUS, 8.05),
                               (configs.OURO, 2.67)]:
        figures, error = size(path, config)
        check_equal(round(figures["parameters"] / 1e9, 2), parameters, config["model_type"], error)
    # four passes multiply a token with the same weights, and all but the embedding are read again
    check_equal(figures["active_parameters"],
                4 * 48 * (4 * 2048 * 2048 + 3 * 2048 * 5632) + 2048 * 49152)
    figures, error = size(path, {**configs.ERNIE, "moe_num_experts": [64, 64]})
    check_equal(figures["parameters"], None, "experts of two kinds", error)
    # ERNIE's layers with experts, in its words and in others
    several = [{"moe_layer_start_index": 0, "moe_layer_interval": 3},
               {"moe_layer_interval": None, "mlp_layer_types": ["dense", "dense", "sparse"] * 9 + ["dense"]},
               {"moe_layer_interval": None, "moe_layers_enum": ",".join(map(str, range(2, 28, 3)))}]
    found = {size(path, {**configs.ERNIE, **more})[0]["parameters"] for more in several}
    all_of_them = size(path, configs.ERNIE)[0]["parameters"]
    # 9 layers with experts, not 27; a layer without has an MLP instead of 64 + 2 experts and a router
    check_equal(found, {all_of_them - 18 * (3 * 2560 * (66 * 1536 - 12288) + 2560 * 64)})
    # a block of 16 tokens in layers with a window has the bytes of 32 in layers without
    figures, error = size(path, configs.GEMMA4_31B, "--memory", "100GiB", "--weights", "31GB")
    check_equal([(group["layers"], group["layer_groups"], group["bytes_per_token"])
                 for group in figures["groups"]], [(10, 1, 81920), (50, 5, 819200)], error)
    check_equal((figures["bytes_per_block"], figures["padding_per_sequence"]),
                (10 * 16384 * 16, 0), error)
    check_equal([group["block_tokens"] for group in figures["groups"]], [32, 16])
    # the figure of a public catalogue, with windows of whole blocks: 8,192 tokens, one more block
    check_equal(figures["bytes_per_sequence"], 8192 * 81920 + 65 * 16 * 819200)
    check_equal((figures["full_kv_heads"], figures["full_head_dim"]), (4, 512))
    text = run("size", "--model-config", path, "--memory", "100GiB", "--weights", "31GB")
    for line in text.stdout.decode().splitlines()[1:]:
        check(len(line) <= 80, "wider than 80 columns:", line)
    for line in ["  layer groups                   6  in one pool of blocks of 2,621,440 B\n",
                 "    full                         1  of 10 layers, blocks of 32 tokens\n",
                 "    windowed                     5  of 10 layers, blocks of 16 tokens\n"]:
        check(line in text.stdout.decode(), line, text.stdout.decode())


def main():
    with directory() as folder:
        path = os.path.join(folder, "config.json")
        check_models(path)
        check_wrong(path)
        check_files(path)
        check_figures(path)
    finish()


main()
