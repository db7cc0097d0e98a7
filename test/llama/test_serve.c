/* Parts of kvpager-serve, without HTTP: text, limits, samplers' arguments, the command line and
 * ggml's back ends. */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mocka.h"
#include "../../integrations/llama/serve/engine/backends.h"
#include "../../integrations/llama/serve/engine/limits.h"
#include "../../integrations/llama/serve/engine/sampling.h"
#include "../../integrations/llama/serve/engine/text.h"
#include "../../integrations/llama/serve/options.h"
#include "fake/fake.h"
#include "scoped_engine.h"

#include <kvpager/llama.h>

static uint32_t random_state = 1;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % below;
}

/* ----------------------------------------------------------------------------------------- text */

/* Whole characters of all bytes at once, by decoding them; what is none is U+FFFD, by the rule of
 * maximal subparts. Gives the length. */
static size_t decode(const unsigned char *bytes, size_t n, char *out)
{
    size_t n_out = 0;
    for (size_t i = 0; i < n;) {
        const unsigned char b = bytes[i];
        size_t need = b < 0x80 ? 1 : b >= 0xC2 && b <= 0xDF ? 2 : b >= 0xE0 && b <= 0xEF ? 3 : 0;
        if (b >= 0xF0 && b <= 0xF4)
            need = 4;
        size_t have = need > 0 ? 1 : 0;
        while (have > 0 && have < need && i + have < n) {
            const unsigned char c = bytes[i + have];
            const int is_second = have == 1;
            if (c < 0x80 || c > 0xBF || (is_second && b == 0xE0 && c < 0xA0) ||
                (is_second && b == 0xED && c > 0x9F) || (is_second && b == 0xF0 && c < 0x90) ||
                (is_second && b == 0xF4 && c > 0x8F))
                break;
            have++;
        }
        if (need > 0 && have == need) {
            memcpy(&out[n_out], &bytes[i], need);
            n_out += need;
            i += need;
        } else {
            memcpy(&out[n_out], "\xEF\xBF\xBD", 3);
            n_out += 3;
            i += have > 0 ? have : 1;
        }
    }
    return n_out;
}

/* The stop string that is complete first; of several, the longest. */
static size_t find_first(const char *text, size_t n, const kvpi_stops *stops)
{
    for (size_t end = 1; end <= n; end++) {
        size_t longest = 0;
        for (size_t k = 0; k < stops->n; k++)
            if (stops->n_bytes[k] <= end && stops->n_bytes[k] > longest &&
                memcmp(&text[end - stops->n_bytes[k]], stops->strings[k], stops->n_bytes[k]) == 0)
                longest = stops->n_bytes[k];
        if (longest > 0)
            return end - longest;
    }
    return n;
}

static void draw_stops(kvpi_stops *stops)
{
    static const char *const some[] = {"ab", "aab", "b\xC3\xA9", "\xC3\xA9", "aaaa", "ba\303\251a"};
    memset(stops, 0, sizeof *stops);
    stops->n = draw(3);
    for (size_t i = 0; i < stops->n; i++) {
        const char *stop = some[draw(6)];
        stops->n_bytes[i] = strlen(stop);
        memcpy(stops->strings[i], stop, strlen(stop));
    }
}

static int is_whole(const char *text, size_t n)
{
    char out[1024];
    return n == 0 ||
           (decode((const unsigned char *)text, n, out) == n && memcmp(out, text, n) == 0);
}

/* Feeds bytes in pieces of any length. What is handed out is the beginning of the whole text, each
 * time made of whole characters, and nothing of a stop string. */
static void feed(const unsigned char *bytes, size_t n, const kvpi_stops *stops)
{
    char whole[1024], given[1024];
    size_t n_given = 0;
    kvpi_text text = {0};
    const size_t n_whole = decode(bytes, n, whole);
    const size_t end = find_first(whole, n_whole, stops);
    for (size_t i = 0; i < n && !text.is_stopped;) {
        const size_t most = n - i < 4 ? n - i : 4, more = 1 + draw((uint32_t)most);
        assert_int_equal(kvpi_text_put(&text, (const char *)&bytes[i], more, stops), 0);
        i += more;
        const size_t ready = kvpi_text_ready(&text, stops);
        assert_true(is_whole(text.bytes, ready));
        if (ready > 0)
            memcpy(&given[n_given], text.bytes, ready);
        n_given += ready;
        kvpi_text_drop(&text, ready);
        assert_true(n_given <= end);
    }
    assert_int_equal(kvpi_text_end(&text), 0);
    if (text.n > 0)
        memcpy(&given[n_given], text.bytes, text.n);
    n_given += text.n;
    assert_int_equal(n_given, end);
    assert_memory_equal(given, whole, n_given);
    kvpi_text_free(&text);
}

TEST(text_is_whole_and_stops)
{
    static const unsigned char some[] = {'a',  'a',  'b',  0xC3, 0xA9, 0xE2, 0x82, 0xAC,
                                         0xF0, 0x9F, 0x98, 0x80, 0xED, 0xA0, 0xF4, 0x90};
    unsigned char bytes[64];
    kvpi_stops stops;
    (void)state;
    for (uint32_t round = 0; round < 20000; round++) {
        const size_t n = 1 + draw(40);
        for (size_t i = 0; i < n; i++)
            bytes[i] = some[draw(round % 2 == 0 ? 5 : sizeof some)];
        draw_stops(&stops);
        feed(bytes, n, &stops);
    }
}

/* --------------------------------------------------------------------------------------- limits */

static struct llama_model plain = {.architecture = "llama"};

/* What the limits allow is what kvp_sched_submit takes, and one more is not, but for the arena,
 * whose pages are counted on the safe side. */
TEST(limits_are_the_schedulers)
{
    static int32_t tokens[4096];
    (void)state;
    for (uint32_t round = 0; round < 60; round++) {
        scoped_engine *engine;
        kvp_llama_config config;
        kvp_stats stats;
        kvp_ns ns;
        kvp_why why;
        struct llama_context_params params = llama_context_default_params();
        kvp_sched_config sched;
        kvp_sched_config_init(&sched);
        kvp_llama_config_init(&config);
        sched.max_samples = 1024 + 64;
        config.sched = &sched;
        config.block_tokens = 1 + draw(16);
        config.max_running = 8;
        config.watermark = draw(10) / 20.0;
        params.n_ctx = 20 + draw(400);
        assert_int_equal(kvp_llama_create(&config, &plain, &params, &engine, &why), KVP_OK);
        assert_int_equal(kvp_cache_stats_get(kvp_llama_cache(engine), &stats), KVP_OK);
        assert_int_equal(kvp_ns_open(kvp_llama_cache(engine), "", 0, &ns), KVP_OK);
        const kvpi_limits limits = {config.block_tokens,
                                    (uint32_t)stats.usable_blocks,
                                    (uint32_t)stats.watermark_blocks,
                                    params.n_ctx,
                                    8,
                                    config.arena_tokens};
        for (uint32_t i = 0; i < 200; i++) {
            const uint32_t n = 1 + draw(8), n_prompt = 1 + draw(params.n_ctx);
            const uint32_t most = kvpi_limits_new(&limits, n_prompt, n);
            assert_int_equal(most > 0, n_prompt <= kvpi_limits_prompt(&limits, n));
            for (uint32_t more = 0; more < 2; more++) {
                kvp_request request;
                const kvp_prompt prompt = {
                    .struct_size = sizeof prompt, .tokens = tokens, .n_tokens = n_prompt};
                const kvp_submission submission = {.struct_size = sizeof submission,
                                                   .prompt = &prompt,
                                                   .ns = ns,
                                                   .n_samples = n,
                                                   .max_new_tokens = most + more,
                                                   .flags = KVP_SUBMIT_BORROW};
                if (most + more == 0)
                    continue;
                const kvp_status status =
                    kvp_sched_submit(kvp_llama_sched(engine), &submission, &request, NULL);
                assert_int_equal(status == KVP_OK, more == 0);
                if (status == KVP_OK)
                    assert_int_equal(kvp_sched_abort(kvp_llama_sched(engine), request), KVP_OK);
            }
        }
    }
}

/* ----------------------------------------------------------------------------- the command line */

#define READ(...)                                                                                  \
    kvpi_options_read(&options, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *),            \
                      (char *const *)(uintptr_t)(const char *[]){__VA_ARGS__, NULL}, why)

/* What is said of a wrong command line begins like this. */
#define READ_WRONG(begin, ...)                                                                     \
    do {                                                                                           \
        assert_int_equal(READ(__VA_ARGS__), KVPI_OPTIONS_WRONG);                                   \
        assert_memory_equal(why, begin, sizeof(begin) - 1);                                        \
    } while (0)

TEST(options_are_llama_servers)
{
    kvpi_options options;
    char why[200];
    (void)state;
    assert_int_equal(READ("x", "-m", "a.gguf", "-c", "4096", "-ngl", "99", "-t", "8", "-ctk",
                          "q8_0", "-ctv", "bf16", "-fa", "on", "--host", "::", "--port", "81",
                          "--api-key", "k", "--alias", "a", "-np", "4", "-n", "-1", "--temp", "0.5",
                          "--snapshot", "kept"),
                     KVPI_OPTIONS_OK);
    assert_string_equal(options.snapshot, "kept");
    assert_string_equal(options.model, "a.gguf");
    assert_fields(options, ctx_size, 4096, gpu_layers, 99, threads, 8, type_k, GGML_TYPE_Q8_0,
                  type_v, GGML_TYPE_BF16);
    assert_fields(options, flash_attn, LLAMA_FLASH_ATTN_TYPE_ENABLED, port, 81, parallel, 4,
                  predict, 0);
    assert_true(options.sampling.temperature == 0.5f);
    assert_string_equal(options.host, "::");
    assert_false(kvpi_options_is_loopback(options.host));
    assert_int_equal(READ("x", "-m", "a"), KVPI_OPTIONS_OK);
    assert_true(kvpi_options_is_loopback(options.host));
    assert_null(options.snapshot);
    assert_int_equal(READ("x", "-h"), KVPI_OPTIONS_HELP);
    READ_WRONG("-m", "x");
    READ_WRONG("-m lacks", "x", "-m");
    READ_WRONG("--port is '65536', expected a whole number from 0 to 65535", "x", "-m", "a",
               "--port", "65536");
    READ_WRONG("--port is '8x'", "x", "-m", "a", "--port", "8x");
    READ_WRONG("-c is '1.5', expected a whole number from 0 to 16777216", "x", "-m", "a", "-c",
               "1.5");
    READ_WRONG("-ctk is 'q9', expected f32, f16, ", "x", "-m", "a", "-ctk", "q9");
    READ_WRONG("-fa is 'maybe', expected on, off or auto", "x", "-m", "a", "-fa", "maybe");
    READ_WRONG("--lora-scaled is no option", "x", "-m", "a", "--lora-scaled", "b:1");
    READ_WRONG("--idle-cells is '-1', expected a whole number from 0", "x", "-m", "a",
               "--idle-cells", "-1");
    READ_WRONG("--host-memory needs -fa on", "x", "-m", "a", "--host-memory", "1G");
    READ_WRONG("--host-memory needs", "x", "-m", "a", "-fa", "auto", "--host-memory", "1G");
    READ_WRONG("-np is more than 84", "x", "-m", "a", "-fa", "on", "--host-memory", "1G", "-np",
               "85");
    READ_WRONG("--temp", "x", "-m", "a", "--temp", "nan");
    READ_WRONG("--temp is '101', expected 0 to 100", "x", "-m", "a", "--temp", "101");
    READ_WRONG("--snapshot is '', expected some text", "x", "-m", "a", "--snapshot", "");
    READ_WRONG("-b is less than -np", "x", "-m", "a", "-b", "4");
    READ_WRONG("--wat is no option", "x", "-m", "a", "--wat");
    assert_string_equal(why, "--wat is no option of kvpager-serve (--help)");
}

TEST(sizes_have_units)
{
    kvpi_options options;
    char why[200];
    static const struct {
        const char *text;
        uint64_t bytes; /* 0: refused */
    } sizes[] = {{"1B", 1},
                 {"4095B", 4095},
                 {"3K", 3072},
                 {"2Mi", 2 << 20},
                 {"8GiB", UINT64_C(8) << 30},
                 {"16383T", UINT64_C(16383) << 40},
                 {"16384T", UINT64_C(16384) << 40},
                 {"16778T", 0},
                 {"18446744073709551615", 0},
                 {"18446744073709551616", 0},
                 {"1.5G", UINT64_C(3) << 29},
                 {"1GB", 1000000000},
                 {"1g", 1 << 30},
                 {"1048576", 1 << 20},
                 {"80B", 80},
                 {"0", 0},
                 {"-1", 0},
                 {"", 0},
                 {" 1", 0},
                 {"1KK", 0},
                 {"G", 0}};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const int found = READ("x", "-m", "a", "-fa", "on", "--host-memory", sizes[i].text);
        assert_int_equal(found, sizes[i].bytes > 0 ? KVPI_OPTIONS_OK : KVPI_OPTIONS_WRONG);
        if (sizes[i].bytes > 0)
            assert_true(options.host_memory == sizes[i].bytes);
        else
            assert_non_null(strstr(why, "expected bytes, such as 1073741824, 512M or 8G"));
    }
    READ_WRONG("--host-memory is '8', which is bytes: 8G?", "x", "-m", "a", "-fa", "on",
               "--host-memory", "8");
}

/* ------------------------------------------------------------------------------------ back ends */

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* -fa after the back ends are loaded, or -100: refused. */
static int load(int are_inside, const char *path, const char *flash)
{
    kvpi_options options;
    char why[200];
    char *argv[] = {"x", "-m", "a", "-fa", (char *)(uintptr_t)flash};
    fake_set_backends(are_inside);
    assert_int_equal(kvpi_options_read(&options, 5, argv, why), KVPI_OPTIONS_OK);
    const int status = kvpi_backends_load(&options, path);
    assert_int_equal(ggml_backend_dev_count() > 0, 1);
    return status == 0 ? (int)options.flash_attn : -100;
}

TEST(back_ends_are_loaded)
{
    static const char path[] = "test_serve.backend", other[] = "test_serve.other-backend";
    (void)state;
    write_file(path, "fake-backend kvpager");
    write_file(other, "fake-backend other");
    assert_int_equal(unsetenv("GGML_BACKEND_PATH"), 0);
    assert_int_equal(load(1, NULL, "auto"), LLAMA_FLASH_ATTN_TYPE_AUTO);
    assert_int_equal(load(0, NULL, "auto"), LLAMA_FLASH_ATTN_TYPE_AUTO);
    assert_int_equal(load(1, path, "auto"), LLAMA_FLASH_ATTN_TYPE_ENABLED);
    assert_int_equal(load(1, path, "on"), LLAMA_FLASH_ATTN_TYPE_ENABLED);
    assert_int_equal(load(1, path, "off"), LLAMA_FLASH_ATTN_TYPE_DISABLED);
    assert_int_equal(load(1, other, "auto"), LLAMA_FLASH_ATTN_TYPE_AUTO);
    assert_int_equal(load(1, "test_serve.nothing", "auto"), -100);
    assert_int_equal(setenv("GGML_BACKEND_PATH", path, 1), 0);
    assert_int_equal(load(0, path, "auto"), LLAMA_FLASH_ATTN_TYPE_ENABLED);
    assert_int_equal(unsetenv("GGML_BACKEND_PATH"), 0);
    (void)remove(path);
    (void)remove(other);
}

TEST_MAIN(NULL, NULL)
