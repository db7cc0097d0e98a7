"""The Cache for transformers: the same tokens as with its own, and prefixes computed once."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import pytest

import kvpager

for package in ("torch", "transformers"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)
torch: Any = importlib.import_module("torch")
transformers: Any = importlib.import_module("transformers")
torch.set_num_threads(1)  # the models are tiny
adapter: Any = importlib.import_module("kvpager.adapters.transformers")

SIZES: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}


def model_of(kind: str, **more: Any) -> Any:
    torch.manual_seed(7)
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **more})
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


def models() -> dict[str, Any]:
    """Full attention; windows; layers of both kinds."""
    kinds = ["full_attention", "sliding_attention", "sliding_attention"]
    return {"llama": model_of("Llama"), "mistral": model_of("Mistral", sliding_window=9),
            "mixed": model_of("Qwen2", use_sliding_window=True, sliding_window=9,
                              layer_types=kinds)}


MODELS = models()
NEW = 15
BEAMS = {"num_beams": 3, "length_penalty": 0.5}


class Counter:
    """How many tokens the model was run on."""

    def __init__(self, model: Any) -> None:
        self.n_tokens = 0
        self.hook = model.model.layers[0].register_forward_pre_hook(self.count)

    def count(self, module: Any, inputs: Any) -> None:
        self.n_tokens += inputs[0].shape[1]


def prompt_of(n_tokens: int, seed: int, n_rows: int = 1) -> Any:
    return torch.randint(2, 64, (n_rows, n_tokens),
                         generator=torch.Generator().manual_seed(seed))


def pool_of(model: Any, n_blocks: int = 256) -> Any:
    return adapter.Pool(model.config, n_blocks=n_blocks, block_tokens=4, dtype=model.dtype,
                        max_seqs=32, max_seq_tokens=256)


def both(model: Any, pool: Any, prompt: Any, mask: Any = None, **how: Any) -> tuple[int, int]:
    """Generates with both caches, compares the tokens; gives (tokens hit, tokens run)."""
    how = {"do_sample": False, "max_new_tokens": NEW, **how}
    if mask is not None:
        how["attention_mask"] = mask
    want = model.generate(prompt, **how)
    counter = Counter(model)
    with pool.cache(prompt, mask) as past:
        got = model.generate(prompt, past_key_values=past, **how)
        if "num_beams" not in how and "num_return_sequences" not in how:
            past.keep(got)
    counter.hook.remove()
    assert got.tolist() == want.tolist()
    assert len(set(got[0].tolist())) > 4, "a model that repeats itself shows nothing"
    pool.books.check()
    stats = pool.books.stats()
    assert stats.held_blocks == 0 and stats.open_seqs == 0
    return past.cached_tokens, counter.n_tokens


@pytest.mark.parametrize("how", [{}, BEAMS], ids=["greedy", "beams"])
@pytest.mark.parametrize("name", MODELS)
def test_two_calls_with_a_prefix(name: str, how: dict[str, Any]) -> None:
    model = MODELS[name]
    pool = pool_of(model)
    first, second = prompt_of(30, 1), prompt_of(37, 2)
    second[:, :26] = first[:, :26]
    assert both(model, pool, first, **how) == (0, 30 + NEW - 1)
    assert both(model, pool, second, **how) == (24, 13 + NEW - 1)
    assert both(model, pool, first, **how)[0] >= 28
    pool.close()


@pytest.mark.parametrize("name", MODELS)
def test_an_answer_is_hit_by_the_next_question(name: str) -> None:
    model = MODELS[name]
    pool, prompt = pool_of(model), prompt_of(10, 3)
    both(model, pool, prompt)
    answer = model.generate(prompt, do_sample=False, max_new_tokens=NEW)
    hit, run = both(model, pool, torch.cat([answer, prompt_of(5, 4)], dim=1))
    assert (hit, run) == (24, 30 - 24 + NEW - 1)


@pytest.mark.parametrize("name", MODELS)
def test_a_whole_prompt_is_hit(name: str) -> None:
    model = MODELS[name]
    pool, prompt = pool_of(model), prompt_of(20, 5)
    both(model, pool, prompt)
    assert both(model, pool, prompt) == (19, 1 + NEW - 1)


@pytest.mark.parametrize("how", [{}, BEAMS], ids=["greedy", "beams"])
@pytest.mark.parametrize("name", MODELS)
def test_rows_with_different_hits(name: str, how: dict[str, Any]) -> None:
    model = MODELS[name]
    pool, prompt = pool_of(model), prompt_of(26, 6, 3)
    prompt[2, :12] = prompt[0, :12]
    both(model, pool, prompt[:1], **how)
    assert both(model, pool, prompt, **how)[0] == 0
    assert both(model, pool, prompt[1:], **how)[0] >= 24
    prompt[2, 14:] = prompt[0, 14:]
    assert both(model, pool, prompt, **how)[0] == 12


def test_padding_is_part_of_the_content() -> None:
    model = MODELS["mistral"]
    pool, prompt = pool_of(model), prompt_of(24, 8, 2)
    mask = torch.ones_like(prompt)
    mask[1, :6] = 0
    prompt[1, :6] = 0
    both(model, pool, prompt, mask)
    assert both(model, pool, prompt, mask)[0] == 23
    assert both(model, pool, prompt[1:])[0] == 0
    mask[1, 3] = 1
    with pytest.raises(ValueError, match="attention_mask"):
        pool.cache(prompt, mask)


def test_several_samples() -> None:
    model, how = MODELS["llama"], {"do_sample": True, "num_return_sequences": 3}
    pool, prompt = pool_of(model), prompt_of(21, 9)
    for _ in range(2):
        answers = []
        with pool.cache(prompt) as past:
            for given in ({}, {"past_key_values": past}):
                torch.manual_seed(3)
                answers.append(model.generate(prompt, max_new_tokens=12, **how, **given).tolist())
            past.keep(torch.tensor(answers[1]))
        assert answers[0] == answers[1] and answers[0][0] != answers[0][1]
    assert past.cached_tokens == 20
    pool.books.check()


def test_kv_is_in_the_pool_s_memory() -> None:
    """What the tensors show is what the library has there."""
    model = MODELS["mixed"]
    pool, prompt = pool_of(model), prompt_of(8, 10)
    with pool.cache(prompt) as past:
        model(prompt, past_key_values=past, use_cache=True)
        own = model(prompt, use_cache=True).past_key_values
        for layer in range(3):
            row = past.rows[0].row(group=pool.group_of[layer])
            keys, values = pool.memory.gather(row, pool.place_of[layer], 0, 8)
            wanted = own.layers[layer].keys[0].transpose(0, 1)
            assert torch.allclose(torch.from_numpy(keys), wanted, atol=1e-6)
            assert values.any()


def test_no_room() -> None:
    model = MODELS["llama"]
    pool = pool_of(model, n_blocks=12)
    with pytest.raises(kvpager.NeverError):
        pool.cache(prompt_of(45, 11))
    with pool.cache(prompt_of(30, 11)), pytest.raises(kvpager.NoBlocksError):
        pool.cache(prompt_of(30, 12))
    assert pool.books.stats().open_seqs == 0
    both(model, pool, prompt_of(20, 12))


def test_wrong_arguments() -> None:
    model = MODELS["llama"]
    with pytest.raises(TypeError, match="dtype"):
        adapter.Pool(model.config, n_blocks=8, dtype=torch.int8)
    pool = pool_of(model)
    with pytest.raises(ValueError, match="input_ids"):
        pool.cache(torch.arange(5))
    past = pool.cache(prompt_of(5, 1))
    with pytest.raises(ValueError, match="output_ids"):
        past.keep(prompt_of(9, 2))
    past.close()
    with pytest.raises(ValueError, match="closed"):
        model(prompt_of(5, 1), past_key_values=past)
