"""Shapes of models of 2025 and 2026 in the styles of their config.json files: as published, and as
transformers 5 saves them again (renamed kinds of layers, moved keys). Names and numbers are facts;
of each file only the keys that matter are here.

FILES: a name, the file, bytes of a sequence of N tokens in bf16 with one state of recurrent layers.
REFUSED: the same, with what the message must say.
"""

N = 8192


def heads(n, kv, k, v=None, tokens=N):
    return n * kv * (k + (v or k)) * 2 * tokens


def latent(n, rank=512, rope=64, tokens=N):
    return n * (rank + rope) * 2 * tokens


def index(n, dim=128, tokens=N):
    return n * dim * 2 * tokens


def delta(n, keys, values, dim=128, value=128):
    return n * (values * dim * value * 4 + 3 * (2 * keys * dim + values * value) * 2)


def kda(n, count, dim=128):
    return n * (count * dim * dim * 4 + 3 * 3 * count * dim * 2)


def mamba2(n, count, dim, groups, state, kernel=4):
    return n * (count * dim * state * 4 + (kernel - 1) * (count * dim + 2 * groups * state) * 2)


def sconv(n, kv, dim, hidden):
    return n * 3 * (2 * kv * dim + 2 * hidden) * 2


def types(period, n, others, last="full_attention"):
    return [last if (i + 1) % period == 0 else others for i in range(n)]


def of(model_type, layers, q, kv=None, dim=None, **more):
    config = {"model_type": model_type, "num_hidden_layers": layers, "num_attention_heads": q,
              "num_key_value_heads": kv, "head_dim": dim, "torch_dtype": "bfloat16",
              "hidden_size": 4096, **more}
    return {key: value for key, value in config.items() if value is not None}


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


WINDOW = "sliding_attention"
MLA = {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
       "v_head_dim": 128}
INDEX = {"index_head_dim": 128, "index_n_heads": 64, "index_topk": 2048}
DELTA = {"linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
         "linear_num_value_heads": 32, "linear_value_head_dim": 128}
V32 = of("deepseek_v32", 61, 128, 128, **MLA, **INDEX, num_nextn_predict_layers=1)
GLM52 = of("glm_moe_dsa", 78, 64, 64, **MLA, **INDEX, index_topk_freq=4, index_skip_topk_offset=3,
           index_share_for_mtp_iteration=True)
V4 = of("deepseek_v4", 43, 64, 1, 512, sliding_window=128, **INDEX, o_groups=8, o_lora_rank=1024,
        q_lora_rank=1024, qk_rope_head_dim=64,
        compress_ratios=[0, 0] + [4, 128] * 20 + [4] + [0] * 3)
V4_BYTES = (latent(43, tokens=128, rank=448) + latent(21, 448, tokens=N // 4)
            + latent(20, 448, tokens=N // 128) + index(21, tokens=N // 4))
V41 = of("deepseek_v41_text", 40, 64, 1, 512, sliding_window=128, **INDEX, qk_rope_head_dim=64,
         compress_ratios=[0, 0] + [2] * 18 + [1] * 20 + [0] * 3, kv_source_layer_ids=[2, 8, 14, 20],
         index_source_layer_ids=[2, 8, 14, 20, 24, 28, 32, 36])
M3 = of("minimax_m3_vl_text", 60, 64, 4, 128, index_block_size=128, index_topk_blocks=16)
E2B = of("gemma4_text", 35, 8, 1, 256, layer_types=types(5, 35, WINDOW), num_kv_shared_layers=20,
         sliding_window=512, hidden_size_per_layer_input=256)
E2B_BYTES = heads(3, 1, 512) + heads(12, 1, 256, tokens=512)
MIMO = of("mimo_v2", 48, 64, 4, 192, v_head_dim=128, sliding_window=128, sliding_window_size=128)
PATTERN = [0] + ([1] * 5 + [0]) * 7 + [1] * 5
MIMO_BYTES = heads(8, 4, 192, 128) + heads(40, 8, 192, 128, tokens=128)
OWN = {"swa_num_attention_heads": 64, "swa_num_key_value_heads": 8, "swa_head_dim": 192,
       "swa_v_head_dim": 128}
NEMOTRON = {"model_type": "nemotron_h", "num_attention_heads": 32, "num_key_value_heads": 2,
            "head_dim": 128, "hidden_size": 2688, "mamba_num_heads": 64, "mamba_head_dim": 64,
            "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4, "torch_dtype": "bfloat16",
            "time_step_limit": [0.0, float("inf")]}
NEMOTRON_BYTES = heads(3, 2, 128) + mamba2(12, 64, 64, 8, 128)
INKLING = of("inkling_text", 66, 64, 8, 128, swa_num_attention_heads=64, swa_num_key_value_heads=16,
             swa_head_dim=128, sliding_window_size=512, d_rel=16, rel_extent=1024)
INKLING_BYTES = (heads(11, 8, 128) + heads(55, 16, 128, tokens=512) + sconv(11, 8, 128, 4096)
                 + sconv(55, 16, 128, 4096))
KDA = {"num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4,
       "full_attn_layers": [4, 8, 12, 16, 20, 24, 27]}
MAMBA = {"mamba_d_conv": 4, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_expand": 2,
         "mamba_n_groups": 1, "mamba_n_heads": 128}
FLAT = {"linear_num_heads": 64, "linear_head_dim": 128, "linear_conv_kernel_dim": 4}

FILES = [
    ("DeepSeek V3.2", V32, latent(61) + index(61)),
    ("V3.2, saved again", {**V32, "head_dim": 64, "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 58,
                           "layer_types": ["indexed_attention"] * 61}, latent(61) + index(61)),
    ("V3.2, half renamed", {**V32, "layer_types": ["deepseek_sparse_attention"] * 61},
     latent(61) + index(61)),
    ("GLM-5", without(GLM52, "index_topk_freq", "index_skip_topk_offset"), latent(78) + index(78)),
    ("GLM-5.2", GLM52, latent(78) + index(21)),
    ("GLM-5.2, saved again", {**without(GLM52, "index_topk_freq", "index_skip_topk_offset"),
                              "indexer_types": ["full"] * 3 + ["shared", "shared", "shared", "full"]
                              * 18 + ["shared"] * 3}, latent(78) + index(21)),
    ("a pattern of letters", {**without(GLM52, "index_topk_freq"),
                              "index_topk_pattern": "FFFSSSF" + "SSSF" * 17 + "SSS"},
     latent(78) + index(21)),
    ("GLM-5.3-Flash", of("glm5_next_text", 45, 64, 64, **{**MLA, "qk_rope_head_dim": 0}, **INDEX,
                         index_kpool=4, linear_attn_config={
                             **KDA, "num_heads": 64, "full_attn_layers": list(range(4, 45, 4))}),
     latent(11, rope=0) + index(11, tokens=N // 4) + kda(34, 64)),
    ("GLM-5.3-Flash, saved again", {"model_type": "glm5_next", "text_config": of(
        "glm5_next_text", 45, 64, 64, **{**MLA, "qk_rope_head_dim": 0}, **INDEX, **FLAT,
        index_kpool=4, layer_types=types(4, 45, "linear_attention", "indexed_attention"))},
     latent(11, rope=0) + index(11, tokens=N // 4) + kda(34, 64)),
    ("DeepSeek V4 Flash", V4, V4_BYTES),
    ("V4 Flash, saved again", {**without(V4, "compress_ratios", "qk_rope_head_dim"), "layer_types":
                               ["compressed_sparse_attention", "heavily_compressed_attention"] * 21
                               + ["compressed_sparse_attention"], "compress_rates": {
                                   "compressed_sparse_attention": 4,
                                   "heavily_compressed_attention": 128}},
     latent(43, 448, tokens=128) + latent(22, 448, tokens=N // 4) + latent(21, 448, tokens=N // 128)
     + index(22, tokens=N // 4)),
    ("DeepSeek V4.1 Flash", {"model_type": "deepseek_v41", "text_config": V41},
     latent(3, tokens=N // 2, rank=448) + latent(1, 448) + index(3, tokens=N // 2) + index(5)),
    ("MiniMax M3", {**M3, "sparse_attention_config": {
        "sparse_index_dim": 128, "sparse_attention_freq": [0] * 3 + [1] * 57}},
     heads(60, 4, 128) + index(57)),
    ("MiniMax M3, saved again", {**M3, "index_head_dim": 128, "index_n_heads": 4, "layer_types":
                                 ["full_attention"] * 3 + ["minimax_m3_sparse"] * 57},
     heads(60, 4, 128) + index(57)),
    ("MiniMax Text 01, saved again", of("minimax", 80, 64, 8, 128, linear_attn_alpha_factor=1,
                                        full_attn_alpha_factor=1,
                                        layer_types=types(8, 80, "linear_attention")),
     heads(10, 8, 128) + 70 * 64 * 128 * 128 * 4),
    ("Gemma 4 E2B", {"model_type": "gemma4", "text_config": {**E2B, "global_head_dim": 512}},
     E2B_BYTES),
    ("Gemma 4 E2B, saved again", {**E2B, "per_layer_config": {
        f"{i:02}": {"head_dim": 512} for i in range(4, 35, 5)}}, E2B_BYTES),
    ("Gemma 4 26B A4B", of("gemma4_text", 30, 16, 8, 256, attention_k_eq_v=True, sliding_window=1024,
                           global_head_dim=512, num_global_key_value_heads=2, top_k_experts=8,
                           enable_moe_block=True, num_experts=128, layer_types=types(6, 30, WINDOW)),
     heads(5, 2, 512) + heads(25, 8, 256, tokens=1024)),
    ("Gemma 3n E4B", of("gemma3n_text", 35, 8, 2, 256, layer_types=types(5, 35, WINDOW),
                        num_kv_shared_layers=15, sliding_window=512, intermediate_size=[16384] * 35),
     heads(4, 2, 256) + heads(16, 2, 256, tokens=512)),
    ("MiMo V2", {**MIMO, **OWN, "hybrid_layer_pattern": PATTERN}, MIMO_BYTES),
    ("MiMo V2, saved again", {**MIMO, "layer_types": [WINDOW if i else "full_attention"
                                                      for i in PATTERN],
                              "per_layer_config": {f"{i:02}": {"num_key_value_heads": 8}
                                                   for i, kind in enumerate(PATTERN) if kind}},
     MIMO_BYTES),
    ("Step 3", {"model_type": "step3_vl", "text_config": of(
        "step3_text", 61, 64, None, 256, num_attention_groups=1, moe_layers_enum="4,5,6",
        moe_num_experts=48)}, heads(61, 1, 256)),
    ("Step 3.5 Flash", of("step3p5", 48, 64, None, 128, num_attention_groups=8, sliding_window=512,
                          attention_other_setting={"attention_type": WINDOW, "head_dim": 128,
                                                   "num_attention_heads": 96,
                                                   "num_attention_groups": 4},
                          layer_types=["full_attention", WINDOW, WINDOW, WINDOW] * 12),
     heads(12, 8, 128) + heads(36, 4, 128, tokens=512)),
    ("ChatGLM3", {"model_type": "chatglm", "num_layers": 28, "num_attention_heads": 32,
                  "multi_query_attention": True, "multi_query_group_num": 2, "kv_channels": 128,
                  "hidden_size": 4096, "ffn_hidden_size": 13696, "torch_dtype": "float16",
                  "padded_vocab_size": 65024}, heads(28, 2, 128)),
    ("StarCoder", {"model_type": "gpt_bigcode", "n_layer": 40, "n_head": 48, "n_embd": 6144,
                   "multi_query": True, "attn_pdrop": 0.1, "vocab_size": 49152}, heads(40, 1, 128)),
    ("GPT-BigCode, many heads", {"model_type": "gpt_bigcode", "n_layer": 24, "n_head": 16,
                                 "n_embd": 2048, "multi_query": False}, heads(24, 16, 128)),
    ("GPT-2", {"model_type": "gpt2", "n_layer": 48, "n_head": 25, "n_embd": 1600,
               "vocab_size": 50257}, heads(48, 25, 64)),
    ("GPT-J", {"model_type": "gptj", "n_layer": 28, "n_head": 16, "n_embd": 4096, "rotary_dim": 64},
     heads(28, 16, 256)),
    ("BLOOM", {"model_type": "bloom", "n_layer": 70, "n_head": 112, "hidden_size": 14336},
     heads(70, 112, 128)),
    ("MPT", {"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32,
             "attn_config": {"attn_type": "multihead_attention", "attn_impl": "torch"}},
     heads(32, 32, 128)),
    ("DBRX", {"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40,
              "attn_config": {"kv_n_heads": 8, "clip_qkv": 8, "rope_theta": 500000}},
     heads(40, 8, 128)),
    ("GPT-Neo", {"model_type": "gpt_neo", "num_layers": 24, "num_heads": 16, "hidden_size": 2048,
                 "attention_types": [[["global", "local"], 12]], "window_size": 256,
                 "attention_layers": ["global", "local"] * 12},
     heads(12, 16, 128) + heads(12, 16, 128, tokens=256)),
    ("LongCat-Flash", {"model_type": "longcat_flash", "num_layers": 28, "num_attention_heads": 64,
                       **MLA, "hidden_size": 6144, "moe_topk": 12, "n_routed_experts": 512,
                       "zero_expert_num": 256}, latent(56)),
    ("Nemotron 3 Nano", {**NEMOTRON, "layers_block_type": ["mamba", "moe", "mamba", "moe", "mamba",
                                                           "attention", "mamba", "moe"] * 3},
     NEMOTRON_BYTES),
    ("Nemotron 3 Nano, saved again", {**NEMOTRON, "layers_block_type": [
        "linear_attention", "moe", "linear_attention", "moe", "linear_attention", "full_attention",
        "linear_attention", "mlp"] * 3}, NEMOTRON_BYTES),
    ("Nemotron-H", {**NEMOTRON, "hybrid_override_pattern": "M-M-M*M-" * 3}, NEMOTRON_BYTES),
    ("Qwen3.5 397B", {"model_type": "qwen3_5_moe", "text_config": of(
        "qwen3_5_moe_text", 60, 32, 2, 256, **{**DELTA, "linear_num_value_heads": 64},
        layer_types=types(4, 60, "linear_attention"), mtp_num_hidden_layers=1)},
     heads(15, 2, 256) + delta(45, 16, 64)),
    ("Qwen3.5, by its interval", of("qwen3_5_text", 64, 24, 4, 256, **DELTA,
                                    full_attention_interval=4, mamba_ssm_dtype="float32"),
     heads(16, 4, 256) + delta(48, 16, 32)),
    ("OLMo hybrid", of("olmo_hybrid", 32, 30, 30, 128, **{
        **DELTA, "linear_key_head_dim": 96, "linear_num_key_heads": 30,
        "linear_num_value_heads": 30, "linear_value_head_dim": 192},
        layer_types=types(4, 32, "linear_attention")),
     heads(8, 30, 128) + delta(24, 30, 30, 96, 192)),
    ("windows and delta nets", of("lara_mini", 34, 16, 4, 128, **DELTA, sliding_window=512,
                                  layer_types=["linear_attention"] * 17 + [WINDOW] * 11
                                  + ["full_attention"] * 6),
     heads(6, 4, 128) + heads(11, 4, 128, tokens=512) + delta(17, 16, 32)),
    ("Kimi K3", {"model_type": "kimi_k3", "text_config": of(
        "kimi_k3_text", 93, 96, 96, **MLA, linear_attn_config={
            **KDA, "num_heads": 96, "full_attn_layers": list(range(4, 93, 4)) + [93]})},
     latent(24) + kda(69, 96)),
    ("Kimi Linear, saved again", of("kimi_linear", 27, 32, 32, 64, **MLA, **{
        **FLAT, "linear_num_heads": 32}, layer_types=["linear_attention"] * 20
        + ["full_attention"] * 7), latent(7) + kda(20, 32)),
    ("Inkling", {"model_type": "inkling", "text_config": {
        **INKLING, "use_sconv": True, "sconv_kernel_size": 4,
        "local_layer_ids": [i for i in range(66) if i % 6 != 5]}}, INKLING_BYTES),
    ("Inkling, saved again", {**INKLING, "conv_kernel_size": 4, "number_of_conv_states": 4,
                              "layer_types": types(6, 66, "hybrid_sliding", "hybrid")},
     INKLING_BYTES),
    ("layers that loop", {**INKLING, "conv_kernel_size": 4, "loop_num_passes": 3,
                          "loop_layer_index_start": 6, "loop_layer_index_end": 18,
                          "layer_types": types(6, 66, "hybrid_sliding", "hybrid")},
     heads(15, 8, 128) + heads(75, 16, 128, tokens=512) + sconv(15, 8, 128, 4096)
     + sconv(75, 16, 128, 4096)),
    ("layers that recur", of("dory", 24, 16, 4, 256, sliding_window=1024, n_input_layers=8,
                             n_recurrent_layers=8, n_recurrent_loops=2,
                             layer_types=[WINDOW, "mlp"] * 4 + [WINDOW, "mlp", "full_attention",
                                                                "mlp"] * 4),
     heads(6, 4, 256) + heads(10, 4, 256, tokens=1024)),
    ("Falcon-H1", of("falcon_h1", 32, 32, 8, None, **{**MAMBA, "mamba_d_ssm": 8192},
                     ssm_in_multiplier=1.0, key_multiplier=1.0),
     heads(32, 8, 128) + mamba2(32, 128, 64, 1, 128)),
    ("Bamba", of("bamba", 32, 32, 8, None, **MAMBA, attn_layer_indices=[9, 18, 27]),
     heads(3, 8, 128) + mamba2(29, 128, 64, 1, 128)),
    ("Granite 4, saved again", of("granitemoehybrid", 40, 32, 8, None, **MAMBA,
                                  layer_types=types(10, 40, "linear_attention")),
     heads(4, 8, 128) + mamba2(36, 128, 64, 1, 128)),
    ("Zamba2", of("zamba2", 54, 32, 32, None, hidden_size=2560, attention_head_dim=160,
                  attention_hidden_size=5120, n_mamba_heads=8, mamba_headdim=640, mamba_ngroups=1,
                  mamba_d_state=64, mamba_d_conv=4, mamba_expand=2,
                  hybrid_layer_ids=[6, 12, 18, 24, 30, 36, 42, 47, 51]),
     heads(9, 32, 160) + mamba2(54, 8, 640, 1, 64)),
    ("LFM3", of("lfm3", 24, 16, 4, 128, hidden_size=2048, conv_L_cache=7, sliding_window=256,
                layer_types=["conv"] * 13 + [WINDOW] * 5 + ["full_attention"] * 6),
     heads(6, 4, 128) + heads(5, 4, 128, tokens=256) + 13 * 6 * 2048 * 2),
    ("RecurrentGemma", of("recurrent_gemma", 26, 10, 1, 256, attention_window_size=2048,
                          block_types=["recurrent", "recurrent", "attention"], conv1d_width=4,
                          lru_width=2560), heads(8, 1, 256, tokens=2048)
     + 18 * (2560 * 4 + 3 * 2560 * 2)),
    ("dots3-note", of("dots3_note", 46, 128, 128, **MLA, **INDEX, use_dsa=True, sliding_window=512,
                      swa_kv_lora_rank=1024, swa_qk_rope_head_dim=64, swa_num_attention_heads=64,
                      swa_num_key_value_heads=64),
     latent(13) + index(13) + latent(33, 1024, tokens=512)),
    ("dots3-note, saved again", of(
        "dots3_note_text", 46, 128, 128, **MLA, **INDEX, sliding_window=512,
        layer_types=["indexed_attention"] * 13 + [WINDOW] * 33, per_layer_config={
            f"{i:02}": {"kv_lora_rank": 1024, "num_attention_heads": 64, "qk_nope_head_dim": 192}
            for i in range(13, 46)}), latent(13) + index(13) + latent(33, 1024, tokens=512)),
    ("layers that read others'", of("mistral_large4_text", 8, 64, 64, **MLA, **INDEX,
                                    kv_source_layers=[0, 1, 1, 1, 4, 4, 6, 6],
                                    indexer_types=["full", "shared"] * 4), latent(4) + index(4)),
    ("heads of each layer", of("decilm", 4, 32, 8, 128, num_key_value_heads_per_layer=[4, 4, 2, 1]),
     heads(2, 4, 128) + heads(1, 2, 128) + heads(1, 1, 128)),
    ("Nemotron Super, layers left out", of("nemotron-nas", 4, 64, None, 128, hidden_size=8192,
                                           block_configs=[
        {"attention": {"n_heads_in_group": 8, "no_op": False}, "ffn": {"ffn_mult": 2.6}},
        {"attention": {"n_heads_in_group": None, "no_op": True}},
        {"attention": {"n_heads_in_group": None, "replace_with_linear": True}},
        {"attention": {"n_heads_in_group": 16}}]), heads(1, 8, 128) + heads(1, 4, 128)),
    ("Hunyuan Large", of("hunyuan", 64, 80, 8, 128, use_cla=True, cla_share_factor=2),
     heads(32, 8, 128)),
    ("index keys of four tokens", of("qwen4_exp_text", 40, 16, 2, 256, **DELTA, indexer_head_dim=128,
                                     indexer_n_heads=8, indexer_kv_heads=1,
                                     indexer_compress_ratio=4, indexer_budget=2048,
                                     layer_types=types(4, 40, "linear_attention",
                                                       "indexed_attention")),
     heads(10, 2, 256) + index(10, tokens=N // 4) + delta(30, 16, 32)),
    ("Qwen3-Omni", {"model_type": "qwen3_omni_moe", "thinker_config": {
        "model_type": "thinker", "text_config": of("qwen3_omni_moe_text", 48, 32, 4, 128)}},
     heads(48, 4, 128)),
    ("Qwen3 MoE, heads of no size of their own", of("qwen3_moe", 24, 32, 4, hidden_size=2048),
     heads(24, 4, 64)),
    # two convolutions of queries and keys, each of two tokens, and half a value
    ("ZAYA", of("zaya", 40, 8, 2, 128, hidden_size=2048, cca_time0=2, cca_time1=2,
                layer_types=["hybrid"] * 40), heads(40, 2, 128) + 40 * 2 * (2 * 10 * 128 + 128)),
    ("XGLM", {"model_type": "xglm", "num_layers": 24, "attention_heads": 16, "d_model": 1024,
              "ffn_dim": 4096, "vocab_size": 256008}, heads(24, 16, 64)),
    ("Kosmos-2", {"model_type": "kosmos-2", "text_config": {
        "model_type": "kosmos_2_text_model", "layers": 24, "attention_heads": 32, "embed_dim": 2048,
        "ffn_dim": 8192}}, heads(24, 32, 64)),
    ("XLM", {"model_type": "xlm", "n_layers": 12, "n_heads": 16, "emb_dim": 2048},
     heads(12, 16, 128)),
]

REFUSED = [
    ("no head", without(V32, "num_attention_heads"), 'no "num_attention_heads", which says how many'),
    ("no layers", {"model_type": "llama", "num_attention_heads": 8},
     'no "num_hidden_layers", which says how many layers keep KV'),
    ("no attention", {"model_type": "xlstm", "num_hidden_layers": 32, "num_heads": 8,
                      "hidden_size": 4096, "qk_dim_factor": 0.5},
     'model_type is "xlstm", whose layers keep a state and no KV'),
    ("no second convolution", of("zaya", 40, 8, 2, 128, cca_time0=2, layer_types=["hybrid"] * 40),
     'no "cca_time1", which says how large a state is'),
    ("no window", {**MIMO, "sliding_window": None, "sliding_window_size": None,
                   "hybrid_layer_pattern": PATTERN}, 'no "sliding_window", which says how many tokens'),
    ("no rope", without(V32, "qk_rope_head_dim"), 'no "qk_rope_head_dim", which says how wide'),
    ("no state", without(FILES[35][1], "ssm_state_size"), 'no "ssm_state_size", which says how large'),
    ("infinite layers", {**V32, "num_hidden_layers": float("inf")},
     "num_hidden_layers is not a finite number"),
    ("infinite heads", {**M3, "num_key_value_heads": float("-inf")},
     "num_key_value_heads is not a finite number"),
    ("no number", {**M3, "head_dim": float("nan")}, "head_dim is not a finite number"),
    ("a new kind", {**V32, "layer_types": ["quantum_attention"] * 61},
     'layer_types[0] is "quantum_attention", a kind of layer that this command does not know'),
    ("heads without layers", without({**MIMO, **OWN}, "sliding_window", "sliding_window_size"),
     "heads of layers with a window, and nothing says which layers have one"),
    ("a schedule too short", {**GLM52, "indexer_types": ["full"] * 77}, "indexer_types has not one"),
    ("ratios too short", {**V4, "compress_ratios": [4] * 42}, "compress_ratios has 42 entries"),
    ("a ratio", {**V4, "compress_ratios": [-4] * 43}, "compress_ratios[0] is no whole number from 0"),
    ("an odd entry", {**V4, "compress_ratios": [3] * 43}, "an entry is of 3 tokens, expected a power"),
    ("a block without heads", of("nemotron-nas", 1, 64, None, 128, block_configs=[{"attention": {}}]),
     'no "block_configs.attention.n_heads_in_group", which says how many KV heads'),
    ("all share", {**E2B, "num_kv_shared_layers": 35}, "num_kv_shared_layers is 35: all layers, "
     "which keep nothing"),
    ("a loop nowhere", {**M3, "loop_num_passes": 2}, "nothing says which layers loop"),
    ("too many loops", of("ouro", 48, 16, 16, 128, total_ut_steps=1000), "layers run for a token"),
    ("no list of layers", of("bamba", 32, 32, 8, None, **MAMBA),
     "and no list says which attend (layer_types, attn_layer_indices)"),
    ("a decoder of an encoder", {"model_type": "trocr", "decoder_layers": 12, "d_model": 1024,
                                 "decoder_attention_heads": 16},
     'has "decoder_layers": they attend to an encoder, too'),
    ("a layer too far", of("bamba", 32, 32, 8, None, **MAMBA, attn_layer_indices=[32]),
     "attn_layer_indices[0] is no layer of 32"),
    ("layers of an image", of("mllama_text_model", 40, 32, 8, cross_attention_layers=[3, 8]),
     'has "cross_attention_layers"'),
    ("more in one layer", {**E2B, "per_layer_config": {"04": {"attention_sinks_dim": 4}}},
     'per_layer_config[04] has "attention_sinks_dim"'),
]
