/* The model of a step's time against figures worked out by hand. */
#include <string.h>

#include "mocka.h"
#include "tool/models/step_model.h"

static const kvpi_step_copies no_copies;

static kvp_step step_of(const kvp_step_seq *seqs, uint32_t n_seqs, uint32_t n_decoding)
{
    kvp_step step = {.seqs = seqs, .n_seqs = n_seqs, .n_decoding = n_decoding};
    for (uint32_t i = 0; i < n_seqs; i++)
        step.n_tokens += seqs[i].n_tokens;
    return step;
}

static kvpi_step_time time_of(const kvpi_step_model *model, const kvp_step_seq *seqs, uint32_t n)
{
    kvp_step step = step_of(seqs, n, 0);
    return kvpi_step_time_of(model, &step, &no_copies);
}

/* 1e9 a second of everything: FLOPs and bytes come out as nanoseconds. */
static kvpi_step_model unit_model(const char *name, uint32_t tensor_parallel)
{
    static const kvpi_device unit = {"unit", "unit", 0, 1e9, 1e9, 0, 0};
    const kvpi_step_shares shares = {1000, 1000, 1000000000};
    kvpi_size_options options = {
        .tensor_parallel = tensor_parallel, .block_tokens = 16, .context_tokens = 1};
    kvpi_model model;
    kvpi_size size;
    assert_true(kvpi_models_find(name, &model));
    options.kv_dtype = model.kv_dtype;
    options.weights_dtype = model.weights_dtype;
    assert_int_equal(kvpi_size_count(&model, &options, &size), 0);
    return (kvpi_step_model){.is_roofline = true,
                             .roofline =
                                 kvpi_step_roofline_of(&model, &options, &size, &unit, &shares)};
}

/* Seconds become nanoseconds on the way: the last bit may differ. */
static void expect_near(double got, double expected)
{
    double difference = got > expected ? got - expected : expected - got;
    assert_true(difference <= expected * 1e-14);
}

/* --------------------------------------------------------------------------------------- rates */

/* 1,000 + 1 decoding x 300 + (10 + 1) prompt tokens x 20.5 + (8 + 10 + 31) of context x 0.25
 * + 6 copied x 2 */
TEST(test_rates)
{
    const kvpi_step_model model = {.step_ns = 1000, .rates = {20500, 300000, 250, 2000}};
    const kvp_step_seq seqs[] = {
        {.begin = 7, .n_tokens = 1, .n_sampled = 1},
        {.begin = 0, .n_tokens = 10, .n_sampled = 0},
        {.begin = 30, .n_tokens = 1, .n_sampled = 1}, /* the end of a prompt, all else cached */
    };
    const kvp_step step = step_of(seqs, 3, 1);
    const kvpi_step_copies copies = {.host_tokens = 6, .device_tokens = 100};
    kvpi_step_time time = kvpi_step_time_of(&model, &step, &copies);
    (void)state;
    assert_int_equal(time.ns, 1550); /* 1000 + 300 + 225.5 + 12.25 + 12 = 1549.75 */
    assert_true(time.copy_ns == 12);
    assert_true(time.compute_ns == 0 && time.memory_ns == 0);
}

TEST(test_nothing_to_compute)
{
    kvpi_step_model model = {.step_ns = 1000, .rates = {1000, 1000, 1000, 2000}};
    const kvp_step step = step_of(NULL, 0, 0);
    const kvpi_step_copies copies = {.host_tokens = 6};
    (void)state;
    assert_int_equal(kvpi_step_time_of(&model, &step, &no_copies).ns, 0);
    assert_int_equal(kvpi_step_time_of(&model, &step, &copies).ns, 12);
    model = unit_model("llama-3.1-8b", 1);
    model.step_ns = 1000;
    assert_int_equal(kvpi_step_time_of(&model, &step, &no_copies).ns, 0);
    assert_int_equal(kvpi_step_time_of(&model, &step, &copies).ns, 6 * 131072);
}

/* The longest time is said, and not wrapped around. */
TEST(test_longest)
{
    const kvpi_step_model model = {.step_ns = UINT64_MAX};
    const kvp_step_seq seq = {.n_tokens = 1};
    (void)state;
    assert_int_equal(time_of(&model, &seq, 1).ns, KVPI_STEP_MAX_NS);
}

/* ------------------------------------------------------------------------------------ roofline */

/* Llama 3.1 8B. A layer: attention 2 x 4096 x 4096 + 2 x 4096 x 1024, MLP 3 x 4096 x 14336; 32 of
 * them: 6,979,321,856 parameters. Output: 4096 x 128256 = 525,336,576, and the input likewise. */
TEST(test_decode)
{
    const double layers = 6979321856, head = 525336576, weights = 2.0 * (8030261248 - 525336576);
    const double pair = 32.0 * 32 * 2 * 2 * 128; /* layers, query heads, 2 FLOPs, K and V */
    kvpi_step_model model = unit_model("llama-3.1-8b", 1);
    const kvp_step_seq seqs[] = {{.begin = 999, .n_tokens = 1, .n_sampled = 1},
                                 {.begin = 49, .n_tokens = 1, .n_sampled = 1}};
    kvpi_step_time time = time_of(&model, seqs, 2);
    (void)state;
    expect_near(time.compute_ns, 2 * 2 * (layers + head) + pair * (1000 + 50));
    expect_near(time.memory_ns, weights + 131072.0 * (1000 + 1 + 50 + 1));
    assert_int_equal(time.ns, (uint64_t)time.compute_ns);
    model.step_ns = 77;
    model.roofline.flops_per_second = 1e12; /* memory is slower now */
    time = time_of(&model, seqs, 2);
    assert_int_equal(time.ns, (uint64_t)time.memory_ns + 77);
}

/* 2,048 tokens after 1,000: the first sees 1,001 keys, the last 3,048. */
TEST(test_prompt)
{
    const double layers = 6979321856, head = 525336576;
    const double pair = 32.0 * 32 * 2 * 2 * 128;
    const double pairs = 2048.0 * 1000 + 2048.0 * 2049 / 2;
    kvpi_step_model model = unit_model("llama-3.1-8b", 1);
    kvp_step_seq seq = {.begin = 1000, .n_tokens = 2048, .n_sampled = 0};
    (void)state;
    kvpi_step_time time = time_of(&model, &seq, 1);
    expect_near(time.compute_ns, 2048 * 2 * layers + pair * pairs);
    seq.n_sampled = 1;
    kvpi_step_time last = time_of(&model, &seq, 1);
    expect_near(last.compute_ns, time.compute_ns + 2 * head);
    expect_near(last.memory_ns, time.memory_ns);
    expect_near(last.memory_ns, 2.0 * (8030261248 - 525336576) + 131072.0 * (3048 + 2048));
}

/* Any window, against a loop over the queries. */
TEST(test_windows)
{
    kvpi_step_model model = {
        .is_roofline = true,
        .roofline = {.flops_per_second = 1e9, .bytes_per_second = 1e9, .n_attention = 1}};
    kvpi_step_attention *attention = &model.roofline.attention[0];
    *attention = (kvpi_step_attention){.token_bytes = 1, .decode_flops = 1, .prompt_flops = 1};
    (void)state;
    for (uint32_t window = 0; window <= 12; window++)
        for (uint32_t begin = 0; begin <= 14; begin++)
            for (uint32_t n = 1; n <= 14; n++) {
                const kvp_step_seq seq = {.begin = begin, .n_tokens = n};
                uint32_t pairs = 0, first_key = UINT32_MAX;
                for (uint32_t query = begin; query < begin + n; query++) {
                    uint32_t from = window > 0 && query + 1 > window ? query + 1 - window : 0;
                    pairs += query + 1 - from;
                    first_key = from < first_key ? from : first_key;
                }
                attention->window_tokens = window;
                kvpi_step_time time = time_of(&model, &seq, 1);
                expect_near(time.compute_ns, pairs);
                expect_near(time.memory_ns, begin + n - first_key + n);
            }
}

/* Chunks of any length, likewise: a query sees those of its chunk that are not behind it. */
TEST(test_chunks)
{
    kvpi_step_model model = {
        .is_roofline = true,
        .roofline = {.flops_per_second = 1e9, .bytes_per_second = 1e9, .n_attention = 1}};
    kvpi_step_attention *attention = &model.roofline.attention[0];
    *attention =
        (kvpi_step_attention){.chunked = 1, .token_bytes = 1, .decode_flops = 1, .prompt_flops = 1};
    (void)state;
    for (uint32_t chunk = 1; chunk <= 12; chunk++)
        for (uint32_t begin = 0; begin <= 26; begin++)
            for (uint32_t n = 1; n <= 26; n++) {
                const kvp_step_seq seq = {.begin = begin, .n_tokens = n};
                uint32_t pairs = 0;
                for (uint32_t query = begin; query < begin + n; query++)
                    for (uint32_t key = 0; key <= query; key++)
                        pairs += key / chunk == query / chunk;
                attention->window_tokens = chunk;
                kvpi_step_time time = time_of(&model, &seq, 1);
                expect_near(time.compute_ns, pairs);
                expect_near(time.memory_ns, begin + n - begin / chunk * chunk + n);
            }
}

/* Half of Gemma 2's layers look back 4,096 tokens. */
TEST(test_two_kinds_of_layers)
{
    const double token_bytes = 42.0 * 2 * 8 * 256 * 2, pair = 42.0 * 16 * 2 * 2 * 256;
    kvpi_step_model model = unit_model("gemma-2-9b", 1);
    const kvp_step_seq near = {.begin = 4094, .n_tokens = 1}, far = {.begin = 9999, .n_tokens = 1};
    (void)state;
    kvpi_step_time a = time_of(&model, &near, 1), b = time_of(&model, &far, 1);
    assert_int_equal(model.roofline.n_attention, 2);
    expect_near(b.compute_ns - a.compute_ns, pair / 2 * (10000 - 4095) + pair / 2 * 1);
    expect_near(b.memory_ns - a.memory_ns, token_bytes / 2 * (10000 - 4095) + token_bytes / 2 * 1);
}

/* Eight experts, two for each token: of one token a quarter is read, of two 1 - 0.75^2. */
TEST(test_experts)
{
    const double experts = 2.0 * 32 * 8 * 3 * 4096 * 14336;
    kvpi_step_model model = unit_model("mixtral-8x7b", 1);
    const double kv = model.roofline.copied_bytes;
    const kvp_step_seq one = {.begin = 0, .n_tokens = 1}, two = {.begin = 0, .n_tokens = 2};
    (void)state;
    double fixed = time_of(&model, &one, 1).memory_ns - experts / 4 - 2 * kv;
    expect_near(fixed, 2.0 * (46702792704 - 4096.0 * 32000) - experts);
    expect_near(time_of(&model, &two, 1).memory_ns, fixed + experts * (1 - 0.5625) + 4 * kv);
}

/* DeepSeek-V2-Lite: 27 layers, 16 heads; a token alone is computed on latent vectors of 512 + 64,
 * more tokens on heads of 128 + 64 and 128. */
TEST(test_latent)
{
    kvpi_step_model model = unit_model("deepseek-v2-lite", 1);
    (void)state;
    assert_true(model.roofline.attention[0].decode_flops == 27.0 * 16 * 2 * (512 + 64 + 512));
    assert_true(model.roofline.attention[0].prompt_flops == 27.0 * 16 * 2 * (128 + 64 + 128));
    assert_true(model.roofline.copied_bytes == 27.0 * (512 + 64) * 2);
    const kvp_step_seq one = {.begin = 9, .n_tokens = 1}, two = {.begin = 9, .n_tokens = 2};
    double layers = model.roofline.token_flops;
    expect_near(time_of(&model, &one, 1).compute_ns, layers + 27.0 * 16 * 2 * 1088 * 10);
    expect_near(time_of(&model, &two, 1).compute_ns, 2 * layers + 27.0 * 16 * 2 * 320 * 21);
}

/* Four accelerators: FLOPs, weights and KV heads are divided. */
TEST(test_tensor_parallel)
{
    const kvp_step_seq seq = {.begin = 999, .n_tokens = 1, .n_sampled = 1};
    kvpi_step_model one = unit_model("llama-3.1-8b", 1), four = unit_model("llama-3.1-8b", 4);
    (void)state;
    expect_near(time_of(&four, &seq, 1).compute_ns, time_of(&one, &seq, 1).compute_ns / 4);
    expect_near(time_of(&four, &seq, 1).memory_ns, time_of(&one, &seq, 1).memory_ns / 4);
}

TEST(test_shares_and_copies)
{
    const kvpi_device *device = kvpi_devices_find("h100");
    const kvpi_step_shares shares = {500, 250, 50000000000};
    const kvpi_size_options options = {
        .tensor_parallel = 1, .block_tokens = 16, .context_tokens = 1};
    kvpi_model llama;
    const kvpi_step_copies copies = {.host_tokens = 16, .device_tokens = 16};
    const kvp_step nothing = step_of(NULL, 0, 0);
    kvpi_step_model model = {.is_roofline = true};
    kvpi_size size;
    (void)state;
    assert_true(kvpi_models_find("llama-3.1-8b", &llama));
    assert_int_equal(kvpi_size_count(&llama, &options, &size), 0);
    model.roofline = kvpi_step_roofline_of(&llama, &options, &size, device, &shares);
    assert_true(model.roofline.flops_per_second == 989.4e12 * 500 / 1000);
    assert_true(model.roofline.bytes_per_second == 3.35e12 * 250 / 1000);
    /* 2 MiB at 50 GB/s are 41,943 ns; read and written at 837.5 GB/s 5,008 ns */
    assert_int_equal(kvpi_step_time_of(&model, &nothing, &copies).ns, 46951);
    kvpi_step_prices prices = kvpi_step_prices_of(&model, 16);
    assert_int_equal(prices.swap_block_ps, 83886080);
    assert_int_equal(prices.recompute_token_ps, 28216381); /* 13,958,643,712 FLOPs at 494.7e12 */
    /* 16 GiB there and back at a byte a second: more than a number holds. Found by fuzzing */
    kvpi_step_model slow = model;
    slow.roofline.host_bytes_per_second = 1;
    assert_true(kvpi_step_prices_of(&slow, 65536).swap_block_ps == KVPI_STEP_MAX_PS);
    const kvpi_step_model rates = {.rates = {7, 8, 9, 10}};
    prices = kvpi_step_prices_of(&rates, 16);
    assert_fields(prices, swap_block_ps, 320, recompute_token_ps, 7);
}

/* What a step reads and what it leaves out are all of the weights, for every row and type. */
TEST(test_traffic)
{
    size_t n = 0;
    const kvpi_models_row *rows = kvpi_models_rows(&n);
    kvpi_model model;
    (void)state;
    for (size_t i = 0; i < n; i++) {
        kvpi_models_read_row(&rows[i], &model);
        for (int type = KVPI_DTYPE_BF16; type <= KVPI_DTYPE_NVFP4; type++) {
            if (model.unknown[0] != '\0')
                continue;
            kvpi_models_traffic t = kvpi_models_count_traffic(&model, (kvpi_dtype)type);
            kvpi_models_count count = kvpi_models_count_parameters(&model);
            uint64_t bytes = kvpi_models_weights_bytes(&model, (kvpi_dtype)type);
            uint64_t input = (uint64_t)model.mlp.hidden * model.mlp.vocab;
            input *= model.mlp.tied ? 0 : type == KVPI_DTYPE_F32 ? 4 : 2;
            assert_int_equal(t.every_step + t.experts + input, bytes);
            assert_int_equal(t.experts > 0, count.experts > 0);
            assert_true(t.every_step > 0 && t.every_step < bytes + 1);
        }
    }
}

TEST_MAIN(NULL, NULL)
