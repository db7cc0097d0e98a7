"""Shapes of published language models as their config.json files say them, with the keys beside
the shape that such files have. Names and numbers are facts; of each file only a part is here.

MODELS: a name, the file, bytes of KV of a token in bf16, summed over layer groups.
WRONG: the same, of files that a reader that knows the common keys only counts wrong; None: refused.
"""

COMMON = {"architectures": ["X"], "attention_bias": False, "attention_dropout": 0.0,
          "bos_token_id": 1, "eos_token_id": [2, 3], "hidden_act": "silu",
          "initializer_range": 0.02, "max_position_embeddings": 32768, "pretraining_tp": 1,
          "rms_norm_eps": 1e-5, "rope_scaling": {"factor": 8.0, "rope_type": "llama3"},
          "rope_theta": 1e6, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
          "use_cache": True}


def of(model_type, layers, heads, kv_heads, head_dim, hidden, **more):
    """A file: None for kv_heads or head_dim leaves the key out."""
    config = {**COMMON, "model_type": model_type, "num_hidden_layers": layers,
              "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim,
              "hidden_size": hidden, "intermediate_size": 4 * hidden, "vocab_size": 128000, **more}
    return {key: value for key, value in config.items() if value is not None}


def types(full, windowed, n):
    """Every full-th layer is full."""
    return [windowed if (i + 1) % full else "full_attention" for i in range(n)]


MOE = {"num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
       "norm_topk_prob": True, "decoder_sparse_step": 1, "router_aux_loss_coef": 0.001}
MLA = {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
       "v_head_dim": 128, "qk_head_dim": 192, "first_k_dense_replace": 3, "moe_layer_freq": 1,
       "n_group": 8, "topk_group": 4, "n_routed_experts": 256, "n_shared_experts": 1,
       "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "num_nextn_predict_layers": 1,
       "scoring_func": "sigmoid", "topk_method": "noaux_tc", "ep_size": 1}
DELTA = {"linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
         "linear_num_value_heads": 32, "linear_value_head_dim": 128,
         "full_attention_interval": 4, "partial_rotary_factor": 0.25}
VISION = {"vision_config": {"num_heads": 16, "num_attention_heads": 12, "head_dim": 80,
                            "window_size": 112, "fullatt_block_indexes": [7, 15],
                            "num_key_value_heads": 3}, "image_token_id": 9}
MAMBA = {"mamba_chunk_size": 256, "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_head": 64,
         "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 128,
         "mamba_proj_bias": False}
WINDOW, CHUNKED = "sliding_attention", "chunked_attention"


def plain(layers, kv_heads, head_dim):
    return 2 * layers * kv_heads * head_dim * 2


MODELS = [
    ("Llama 3.1 8B", of("llama", 32, 32, 8, None, 4096, mlp_bias=False), 131072),
    ("Llama 3.2 1B", of("llama", 16, 32, 8, 64, 2048, tie_word_embeddings=True), 32768),
    ("Llama 4 Scout", {"model_type": "llama4", **VISION, "text_config":
                       of("llama4_text", 48, 40, 8, 128, 5120, attention_chunk_size=8192,
                          attn_scale=0.1, attn_temperature_tuning=4, floor_scale=8192,
                          for_llm_compressor=False, interleave_moe_layer_step=1,
                          no_rope_layers=[], num_local_experts=16, num_experts_per_tok=1,
                          use_qk_norm=True)}, plain(48, 8, 128)),
    ("Qwen 7B", of("qwen", 32, 32, None, None, 4096, kv_channels=128, attn_dropout_prob=0.0,
                   emb_dropout_prob=0.0, rotary_emb_base=10000, rotary_pct=1.0, seq_length=8192,
                   use_dynamic_ntk=True, use_logn_attn=True, no_bias=True), plain(32, 32, 128)),
    ("Qwen2 7B", of("qwen2", 28, 28, 4, None, 3584, max_window_layers=28, sliding_window=131072,
                    use_sliding_window=False, use_mrope=False), plain(28, 4, 128)),
    ("Qwen3 8B", of("qwen3", 36, 32, 8, 128, 4096, max_window_layers=36, sliding_window=None,
                    use_sliding_window=False), plain(36, 8, 128)),
    ("Qwen3 30B A3B", of("qwen3_moe", 48, 32, 4, 128, 2048, mlp_only_layers=[], **MOE,
                         max_window_layers=48, output_router_logits=False), plain(48, 4, 128)),
    ("Qwen3-Next", of("qwen3_next", 48, 16, 2, 256, 2048, **DELTA, **MOE, mlp_only_layers=[],
                      shared_expert_intermediate_size=512), plain(12, 2, 256)),
    ("Qwen3.5 27B", {"model_type": "qwen3_5", **VISION, "text_config":
                     of("qwen3_5_text", 64, 24, 4, 256, 5120, **DELTA, attn_output_gate=True,
                        mamba_ssm_dtype="float32", mtp_num_hidden_layers=1,
                        layer_types=types(4, "linear_attention", 64))}, plain(16, 4, 256)),
    ("Qwen2-VL 7B", of("qwen2_vl", 28, 28, 4, None, 3584, **VISION, video_token_id=8,
                       vision_start_token_id=7, use_sliding_window=False, sliding_window=32768,
                       max_window_layers=28), plain(28, 4, 128)),
    ("Mistral 7B v0.1", of("mistral", 32, 32, 8, None, 4096, sliding_window=4096), 131072),
    ("Mistral Small 3.1", {"model_type": "mistral3", **VISION, "spatial_merge_size": 2,
                           "image_token_index": 10, "multimodal_projector_bias": False,
                           "text_config": of("mistral", 40, 32, 8, 128, 5120,
                                             sliding_window=None)}, plain(40, 8, 128)),
    ("Mixtral 8x7B", of("mixtral", 32, 32, 8, None, 4096, num_local_experts=8, sliding_window=None,
                        num_experts_per_tok=2, router_jitter_noise=0.0), 131072),
    ("Gemma 2 9B", of("gemma2", 42, 16, 8, 256, 3584, attn_logit_softcapping=50.0,
                      cache_implementation="hybrid", final_logit_softcapping=30.0,
                      query_pre_attn_scalar=256, sliding_window=4096), plain(42, 8, 256)),
    ("Gemma 3 27B", {"model_type": "gemma3", **VISION, "mm_tokens_per_image": 256, "text_config":
                     of("gemma3_text", 62, 32, 16, 128, 5376, query_pre_attn_scalar=168,
                        rope_local_base_freq=1e4, sliding_window=1024, sliding_window_pattern=6,
                        layer_types=types(6, WINDOW, 62))}, plain(62, 16, 128)),
    ("Phi-3 mini", of("phi3", 32, 32, 32, None, 3072, embd_pdrop=0.0, resid_pdrop=0.0,
                      sliding_window=2047, original_max_position_embeddings=4096),
     plain(32, 32, 96)),
    ("Phi-4 mini", of("phi3", 32, 24, 8, None, 3072, partial_rotary_factor=0.75,
                      sliding_window=None, attention_probs_dropout_prob=0.0,
                      full_attn_mod=0, use_lora=False,
                      img_processor={"num_attention_heads": 16}), plain(32, 8, 128)),
    ("Phi-3.5 MoE", of("phimoe", 32, 32, 8, None, 4096, num_local_experts=16, sliding_window=None,
                       num_experts_per_tok=2, lm_head_bias=True, input_jitter_noise=0.01), 131072),
    ("DeepSeek V2 Lite", of("deepseek_v2", 27, 16, 16, None, 2048,
                            **{**MLA, "q_lora_rank": None, "qk_head_dim": None},
                            aux_loss_alpha=0.001, seq_aux=True), 27 * 576 * 2),
    ("DeepSeek V3", of("deepseek_v3", 61, 128, 128, None, 7168, **MLA), 61 * 576 * 2),
    ("Kimi K2", of("kimi_k2", 61, 64, 64, None, 7168, **{**MLA, "n_routed_experts": 384}),
     61 * 576 * 2),
    ("Kimi-VL", {"model_type": "kimi_vl", **VISION, "media_placeholder_token_id": 5,
                 "text_config": of("deepseek_v3", 27, 16, 16, None, 2048, **MLA)}, 27 * 576 * 2),
    ("Kimi Linear", of("kimi_linear", 27, 32, 32, 72, 2304, **{**MLA, "q_lora_rank": None},
                       mla_use_nope=True, num_expert_group=1, moe_renormalize=True,
                       linear_attn_config={"full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
                                           "kda_layers": [1, 2, 3], "head_dim": 128,
                                           "num_heads": 32, "short_conv_kernel_size": 4}),
     7 * 576 * 2),
    ("MiniCPM3", of("minicpm3", 62, 40, 40, None, 2560, kv_lora_rank=256, q_lora_rank=768,
                    qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64, scale_emb=12,
                    dim_model_base=256, scale_depth=1.4), 62 * 288 * 2),
    ("gpt-oss 20B", of("gpt_oss", 24, 64, 8, 64, 2880, experts_per_token=4, swiglu_limit=7.0,
                       initial_context_length=4096, layer_types=types(2, WINDOW, 24),
                       num_local_experts=32, num_experts_per_tok=4, sliding_window=128),
     plain(24, 8, 64)),
    ("GLM-4 9B 0414", of("glm4", 40, 32, 2, 128, 4096, partial_rotary_factor=0.5),
     plain(40, 2, 128)),
    ("GLM-4.5", of("glm4_moe", 92, 96, 8, 128, 5120, first_k_dense_replace=3, n_group=1,
                   n_routed_experts=160, n_shared_experts=1, num_experts_per_tok=8,
                   moe_intermediate_size=1536, num_nextn_predict_layers=1, topk_group=1,
                   use_qk_norm=True, routed_scaling_factor=2.5), plain(92, 8, 128)),
    ("Granite 3.3 8B", of("granite", 40, 32, 8, None, 4096, attention_multiplier=0.0078,
                          embedding_multiplier=12.0, logits_scaling=16.0,
                          residual_multiplier=0.22), plain(40, 8, 128)),
    ("Granite 4 H small", of("granitemoehybrid", 40, 32, 8, None, 4096, **MAMBA,
                             layer_types=(["mamba"] * 9 + ["attention"]) * 4,
                             attention_multiplier=0.0078, num_local_experts=72,
                             num_experts_per_tok=10, shared_intermediate_size=1536),
     plain(4, 8, 128)),
    ("Jamba 1.5", of("jamba", 32, 32, 8, None, 4096, attn_layer_offset=4, attn_layer_period=8,
                     expert_layer_offset=1, expert_layer_period=2, mamba_conv_bias=True,
                     mamba_d_conv=4, mamba_d_state=16, mamba_dt_rank=256, mamba_expand=2,
                     mamba_proj_bias=False, num_experts=16, num_experts_per_tok=2,
                     num_logits_to_keep=1, use_mamba_kernels=True), plain(4, 8, 128)),
    ("Nemotron-H 8B", of("nemotron_h", 52, 32, 8, None, 4096, attention_head_dim=128,
                         chunk_size=128, conv_kernel=4, expand=2, mamba_head_dim=64,
                         hybrid_override_pattern="M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M"
                                                 "-M-M-", mamba_hidden_act="silu",
                         mamba_num_heads=128, mamba_proj_bias=False, n_groups=8,
                         num_logits_to_keep=1, residual_in_fp32=False, ssm_state_size=128,
                         time_step_limit=[0.0, 1e9], use_mamba_kernels=True), plain(4, 8, 128)),
    ("LFM2 1.2B", of("lfm2", 16, 32, 8, None, 2048, block_auto_adjust_ff_dim=True, block_dim=2048,
                     block_ff_dim=12288, block_mlp_init_scale=1.0, conv_L_cache=3, conv_dim=2048,
                     conv_dim_out=2048, conv_use_xavier_init=True, num_heads=32,
                     full_attn_idxs=[2, 5, 8, 10, 12, 14], use_pos_enc=True), plain(6, 8, 64)),
    ("MiniMax M1", of("minimax_m1", 80, 64, 8, 128, 6144, attn_type_list=([0] * 7 + [1]) * 10,
                      layernorm_full_attention_alpha=3.56, layernorm_mlp_beta=1.0,
                      num_local_experts=32, num_experts_per_tok=2, postnorm=True, rotary_dim=64,
                      shared_intermediate_size=0), plain(10, 8, 128)),
    ("MiniMax M2", of("minimax_m2", 62, 48, 8, 128, 3072, attn_type_list=[1] * 62,
                      mtp_transformer_layers=1, num_local_experts=256, num_experts_per_tok=8,
                      num_mtp_modules=3, qk_norm_type="per_layer", rotary_dim=64, use_mtp=True),
     plain(62, 8, 128)),
    ("Command R7B", of("cohere2", 32, 32, 8, 128, 4096, layer_switch=4, logit_scale=0.25,
                       order_of_interleaved_layers="local_attn_first", rotary_pct=1.0,
                       position_embedding_type="rope_gptj", sliding_window=4096,
                       use_gated_activation=True), 131072),
    ("Command R v01", of("cohere", 40, 64, 64, None, 8192, logit_scale=0.0625,
                         use_qk_norm=False), plain(40, 64, 128)),
    ("OLMo 2 7B", of("olmo2", 32, 32, 32, None, 4096, clip_qkv=None), plain(32, 32, 128)),
    ("OLMo 3 7B", of("olmo3", 32, 32, 32, None, 4096, layer_types=types(4, WINDOW, 32),
                     sliding_window=4096), plain(32, 32, 128)),
    ("StarCoder2 7B", of("starcoder2", 32, 36, 4, None, 4608, embedding_dropout=0.0,
                         sliding_window=4096, use_bias=True, norm_epsilon=1e-5),
     plain(32, 4, 128)),
    ("Pythia 6.9B", of("gpt_neox", 32, 32, None, None, 4096, rotary_pct=0.25, rotary_emb_base=1e4,
                       use_parallel_residual=True, classifier_dropout=0.1), plain(32, 32, 128)),
    ("Falcon 7B", of("falcon", 32, 71, None, None, 4544, multi_query=True, parallel_attn=True,
                     alibi=False, num_kv_heads=71, bias=False, new_decoder_architecture=False),
     plain(32, 1, 64)),
    ("Falcon 3 7B", of("llama", 28, 12, 4, 256, 3072), plain(28, 4, 256)),
    ("StableLM 2", of("stablelm", 24, 32, 32, None, 2048, num_heads=32, partial_rotary_factor=0.25,
                      qk_layernorm=False, use_qkv_bias=True), plain(24, 32, 64)),
    ("InternLM2 7B", of("internlm2", 32, 32, 8, None, 4096, attn_implementation="eager", bias=False,
                        rope_pct=1.0), 131072),
    ("InternVL 2.5", {"model_type": "internvl_chat", **VISION, "downsample_ratio": 0.5,
                      "llm_config": of("internlm2", 32, 32, 8, None, 4096)}, 131072),
    ("Yi 6B", of("llama", 32, 32, 4, None, 4096), plain(32, 4, 128)),
    ("Baichuan 2 7B", of("baichuan", 32, 32, None, None, 4096, z_loss_weight=0,
                         model_max_length=4096), plain(32, 32, 128)),
    ("EXAONE 4 32B", of("exaone4", 64, 40, 8, 128, 5120, layer_types=types(4, WINDOW, 64),
                        sliding_window=4096, sliding_window_pattern="LLLG"), plain(64, 8, 128)),
    ("Seed-OSS 36B", of("seed_oss", 64, 80, 8, 128, 5120, attention_out_bias=False,
                        residual_dropout=0.1), plain(64, 8, 128)),
    ("SmolLM3", of("smollm3", 36, 16, 4, None, 2048, no_rope_layers=[1, 1, 1, 0] * 9,
                   no_rope_layer_interval=4, layer_types=["full_attention"] * 36,
                   max_window_layers=28, sliding_window=None, use_sliding_window=False),
     plain(36, 4, 128)),
    ("Hunyuan A13B", of("hunyuan_v1_moe", 32, 32, 8, None, 4096, attention_head_dim=128,
                        cla_share_factor=2, use_cla=False, use_mixed_mlp_moe=True,
                        moe_topk=[8] * 32, num_experts=64, num_shared_expert=[1] * 32,
                        kv_lora_rank=None, class_num=0, mask_init_id=12, num_experts_per_tok=8,
                        moe_layer_num_skipped=0, group_limited_greedy=False),
     131072),
    ("Laguna", of("laguna", 40, 48, 8, 128, 2048, layer_types=types(4, WINDOW, 40),
                  mlp_layer_types=["dense"] + ["sparse"] * 39, sliding_window=512,
                  num_attention_heads_per_layer=[48, 64, 64, 64] * 10,
                  moe_routed_scaling_factor=1.0, **MOE), plain(40, 8, 128)),
    ("OPT-like", of("biogpt", 24, 16, None, None, 1024, layerdrop=0.0, scale_embedding=True),
     plain(24, 16, 64)),
    ("Llava 1.6", {"model_type": "llava_next", **VISION, "image_grid_pinpoints": [[336, 672]],
                   "text_config": of("mistral", 32, 32, 8, None, 4096, sliding_window=None)},
     131072),
    ("DeepSeek-VL2", {"model_type": "deepseek_vl_v2", **VISION, "tile_tag": "2D",
                      "language_config": of("deepseek_v2", 27, 16, 16, None, 2048, **MLA)},
     27 * 576 * 2),
]

GEMMA4_31B = of("gemma4_text", 60, 32, 16, 256, 5376, attention_k_eq_v=True, enable_moe_block=False,
                final_logit_softcapping=30.0, global_head_dim=512, hidden_size_per_layer_input=0,
                layer_types=types(6, WINDOW, 60), num_global_key_value_heads=4,
                num_kv_shared_layers=0, sliding_window=1024, use_double_wide_mlp=False,
                vocab_size_per_layer_input=262144, rope_parameters={"full_attention": {
                    "partial_rotary_factor": 0.25}})
# the same, saved again by transformers 5
GEMMA4_AGAIN = {**{key: value for key, value in GEMMA4_31B.items()
                   if key not in ("global_head_dim", "num_global_key_value_heads")},
                "per_layer_config": {f"{i:02}": {"head_dim": 512, "num_key_value_heads": 4}
                                     for i in range(5, 60, 6)}}
GLM4_9B = of("chatglm", 40, 32, None, None, 4096, add_qkv_bias=True, ffn_hidden_size=13696,
             apply_query_key_layer_scaling=True, attention_softmax_in_fp32=True, kv_channels=128,
             multi_query_attention=True, multi_query_group_num=2, num_layers=40,
             padded_vocab_size=151552, seq_length=131072)
SALA = of("minicpm_sala", 32, 32, 2, 128, 4096, attn_use_rope=False, attn_use_output_gate=True,
          lightning_head_dim=128, lightning_nh=32, lightning_nkv=32, lightning_scale="1/sqrt(d)",
          lightning_use_rope=True, mixer_types=(["minicpm4"] + ["lightning-attn"] * 3) * 8,
          mup_denominator=32, qk_norm=True, scale_depth=1.4,
          sparse_config={"block_size": 64, "kernel_size": 32, "topk": 64, "window_size": 2048})
OURO = of("ouro", 48, 16, 16, 128, 2048, early_exit_threshold=1.0, total_ut_steps=4,
          intermediate_size=5632, vocab_size=49152,
          layer_types=["full_attention"] * 48, max_window_layers=48, sliding_window=None,
          use_sliding_window=False)
ERNIE = of("ernie4_5_moe", 28, 20, 4, 128, 2560, intermediate_size=12288, moe_capacity=[64, 64, 64],
           moe_intermediate_size=1536, moe_k=6, moe_layer_start_index=1, moe_layer_end_index=27,
           moe_layer_interval=1, moe_num_experts=64, moe_num_shared_experts=2, moe_use_aux_free=True,
           tie_word_embeddings=True, vocab_size=103424)
APERTUS = of("apertus", 32, 32, 8, None, 4096, hidden_act="xielu", intermediate_size=21504,
             mlp_bias=False, post_norm=False, qk_norm=True, vocab_size=131072)
NVFP4 = {**of("llama", 32, 32, 8, None, 4096), "quantization_config": {
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float"}}},
    "ignore": ["lm_head"], "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
    "producer": {"name": "modelopt"}, "quant_algo": "NVFP4", "quant_method": "modelopt"}}
MIMO = of("mimo_v2_flash", 48, 64, 4, 192, 4096, layer_types=types(6, WINDOW, 48), v_head_dim=128,
          sliding_window=128)
STEP3 = {"model_type": "step3_vl", "text_config":
         of("step3_text", 61, 64, None, 256, 7168, num_attention_groups=1, share_q_dim=2048,
            moe_layers_enum="4,5,6", share_expert_dim=5120, moe_num_experts=48, moe_top_k=3)}
JETMOE = of("jetmoe", 24, 32, 16, None, 2048, kv_channels=128, num_local_experts=8,
            num_experts_per_tok=2)
M3 = of("minimax_m3", 60, 64, 8, 128, 6144, sparse_attention_config={
    "sparse_index_dim": 128, "sparse_attention_freq": [0] * 3 + [1] * 57, "sparse_topk": 16})

WRONG = [
    ("Gemma 4 31B", GEMMA4_31B, 81920 + plain(50, 16, 256)),
    ("Gemma 4 31B, saved again", GEMMA4_AGAIN, 81920 + plain(50, 16, 256)),
    ("Gemma 4 E2B", of("gemma4_text", 35, 8, 1, 256, 1536, global_head_dim=512,
                       layer_types=types(5, WINDOW, 35), num_kv_shared_layers=20,
                       sliding_window=512), 3 * 2048 + 12 * 1024),
    ("heads in some layers only", {**GEMMA4_AGAIN, "per_layer_config": {"07": {"head_dim": 512}}},
     plain(49, 16, 256) + plain(11, 16, 512)),
    ("more in per_layer_config", {**GEMMA4_AGAIN, "per_layer_config": {
        f"{i:02}": {"head_dim": 512, "sliding_window": 9} for i in range(5, 60, 6)}}, None),
    ("GLM-4-9b", GLM4_9B, 40960),
    ("ChatGLM without groups", {**GLM4_9B, "multi_query_attention": False}, plain(40, 32, 128)),
    ("MiniCPM-SALA", SALA, 8192),
    ("another mixer", {**SALA, "mixer_types": ["minicpm4", "gla"] * 16}, None),
    ("Ouro", OURO, 1572864),
    ("Ouro, one step", {**OURO, "total_ut_steps": 1}, 393216),
    ("other loops", of("llama", 24, 16, 4, 64, 1024, n_recurrent_loops=2), None),
    ("loops", of("llama", 24, 16, 4, 64, 1024, loop_num_passes=3), None),
    ("NVFP4 with 8-bit KV", NVFP4, 65536),
    ("MiMo V2, V narrower than K", MIMO, 48 * 4 * (192 + 128) * 2),
    ("Step 3", STEP3, plain(61, 1, 256)),
    ("JetMoE", JETMOE, plain(24, 16, 128)),
    ("MiniMax M3", M3, plain(60, 8, 128) + 57 * 128 * 2),
    ("heads by kind of layer", of("llama", 24, 16, 4, 64, 1024, num_local_kv_heads=2), None),
    ("heads as a list", of("llama", 2, 16, 4, 64, 1024, attention_heads=[16, 8]), None),
    ("head sizes", of("llama", 2, 16, 4, 64, 1024, value_head_size=32), None),
    ("in an object", of("llama", 2, 16, 4, 64, 1024, attn_config={"kv_n_heads": 2}), None),
    ("layers of two parts", of("longcat_flash", 28, 64, 64, None, 6144, **MLA, num_layers=14),
     28 * 576 * 2),
]
