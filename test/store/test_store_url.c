/* What of a URL is shown to anybody, and the secret that one names: what may be read of a file, and
 * that such a store and one that has the secret from its configuration read each other. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mocka.h"
#include "store/backend.h"
#include "store_records.h"

/* -------------------------------------------------------------------------------------- showing */

TEST(test_passwords_and_secrets_are_not_shown)
{
    static const struct {
        const char *url;
        const char *shown;
    } cases[] = {
        {"redis://kv:pass@host:1/2?tags=3", "redis://kv:***@host:1/2?tags=3"},
        {"rediss://kv:pass@host", "rediss://kv:***@host"},
        {"redis://:pass@host", "redis://:***@host"},
        {"redis://kv:p@ss:@host", "redis://kv:***@host"},
        {"redis://kv:p/a?s&s@host", "redis://kv:***@host"},
        {"redis://pass@host", "redis://***@host"},
        {"redis://host:6379?connections=2", "redis://host:6379?connections=2"},
        /* malformed */
        {"redis:/kv:pass@host", "redis:/***@host"},
        {"redis:kv:pass@host", "redis:***@host"},
        {"redis//kv:pass@host", "redis//kv:***@host"},
        {"http://kv:pass@host", "http://***@host"},
        {"kv:pa:ss@host", "kv:***@host"},
        {"pass@host", "***@host"},
        {"", ""},
        /* what cannot be a password's end is taken for one */
        {"redis://kv:pass@host?ca=/a@b", "redis://kv:***@b"},
        /* secrets */
        {"file:/a@b/kv?size=1GiB", "file:/a@b/kv?size=1GiB"},
        {"file:/kv?secret=file:/run/secret&size=1", "file:/kv?secret=file:/run/secret&size=1"},
        {"file:/kv?secret=pass&size=1", "file:/kv?secret=***&size=1"},
        {"file:/kv?size=1&secret=pass", "file:/kv?size=1&secret=***"},
        {"file:/kv?secret=a&secret=b", "file:/kv?secret=***&secret=***"},
        {"redis://host?secret=pa@ss&tags=2", "redis://***&tags=2"},
        {"redis://kv:pass@host?secret=pass", "redis://kv:***@host?secret=***"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char shown[100];
        assert_int_equal(kvp_store_url_show(cases[i].url, shown, sizeof shown), KVP_OK);
        assert_string_equal(shown, cases[i].shown);
        const size_t n = strlen(cases[i].shown);
        assert_int_equal(kvp_store_url_show(cases[i].url, shown, n + 1), KVP_OK);
        if (n == 0)
            continue;
        assert_int_equal(kvp_store_url_show(cases[i].url, shown, n), KVP_E_TOO_SMALL);
        assert_int_equal(strlen(shown), n - 1);
        assert_memory_equal(shown, cases[i].shown, n - 1);
    }
    char shown[4];
    assert_int_equal(kvp_store_url_show(NULL, shown, 4), KVP_E_ARG);
    assert_int_equal(kvp_store_url_show("a", NULL, 4), KVP_E_ARG);
    assert_int_equal(kvp_store_url_show("a", shown, 0), KVP_E_ARG);
}

/* Whatever is wrong with a URL, what is said has no password in it. */
TEST(test_messages_show_no_password)
{
    static const char *const wrong[] = {
        "redis//kv:hush@host",
        "hush@host",
        "hush:hush@host",
        "http://kv:hush@host",
        "redis:kv:hush@host",
        "redis:/kv:hush@host",
        "redis://kv:hush?hush@host",
        "redis://kv:hush?hush=hush&hush@host",
        "redis://hush@host",
        "redis://kv:hu%4hush@host",
        "redis://kv:hush/hush@host",
        "memory:?secret=hush",
        "memory:?secret=hush&tags",
        "memory:?tags&secret=hush",
    };
    kvp_store_scan_options options;
    kvp_store_scan_options_init(&options);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        kvp_store_config config = record_config(wrong[i]);
        kvp_store *store = NULL;
        char why[300];
        assert_int_equal(kvp_store_open(&config, &store, why, sizeof why), KVP_E_ARG);
        if (strlen(why) == 0 || (strstr(why, "hush") && i != 2)) /* 2: a scheme, for all we know */
            fail_msg("%s: %s", wrong[i], why);
        assert_int_not_equal(kvp_store_scan(wrong[i], &options, why, sizeof why), KVP_OK);
        if (strlen(why) == 0 || (strstr(why, "hush") && i != 2))
            fail_msg("%s: %s", wrong[i], why);
    }
}

/* -------------------------------------------------------------------------------------- reading */

/* Up to 2^31 - 1 seconds, in each unit. */
TEST(test_times_of_options)
{
    static const struct {
        const char *value;
        uint64_t seconds; /* 0: it is none */
    } cases[] = {
        {"1s", 1},          {"09s", 9},
        {"3m", 180},        {"2h", 7200},
        {"7d", 604800},     {"2147483647s", 2147483647},
        {"2147483648s", 0}, {"35791394m", 2147483640},
        {"35791395m", 0},   {"596523h", 2147482800},
        {"596524h", 0},     {"24855d", 2147472000},
        {"24856d", 0},      {"0s", 0},
        {"s", 0},           {"5", 0},
        {"5 s", 0},         {"5S", 0},
        {"5ms", 0},         {"/s", 0},
        {":s", 0},          {"18446744073709551621s", 0}, /* 2^64 + 5 */
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kvpi_url url;
        char text[64], why[200] = "";
        uint64_t seconds = 5;
        snprintf(text, sizeof text, "file:/kv?max_age=%s", cases[i].value);
        assert_int_equal(kvpi_url_read(text, &url, NULL, 0), KVP_OK);
        const kvp_status status = kvpi_url_time(&url, "max_age", &seconds, why, sizeof why);
        assert_int_equal(status, cases[i].seconds ? KVP_OK : KVP_E_ARG);
        assert_int_equal(seconds, cases[i].seconds ? cases[i].seconds : 5);
        assert_int_equal(!*why, status == KVP_OK);
        assert_int_equal(kvpi_url_time(&url, "ttl", &seconds, NULL, 0), KVP_OK); /* is not there */
    }
}

/* The longest URL, and the most options. */
TEST(test_as_much_as_there_is_room_for)
{
    static char text[KVPI_URL_BYTES + 1] = "file:";
    struct kvpi_url url;
    for (size_t n = KVPI_URL_BYTES - 1; n <= KVPI_URL_BYTES; n++) {
        memset(text + 5, 'a', n - 5);
        assert_int_equal(kvpi_url_read(text, &url, NULL, 0),
                         n < KVPI_URL_BYTES ? KVP_OK : KVP_E_ARG);
    }
    for (unsigned n = KVPI_URL_OPTIONS; n <= KVPI_URL_OPTIONS + 1; n++) {
        size_t at = (size_t)sprintf(text, "file:/kv?");
        for (unsigned i = 0; i < n; i++)
            at += (size_t)sprintf(text + at, "%so%u=%u", i == 0 ? "" : "&", i, 10 * i);
        assert_int_equal(kvpi_url_read(text, &url, NULL, 0),
                         n == KVPI_URL_OPTIONS ? KVP_OK : KVP_E_ARG);
        if (n > KVPI_URL_OPTIONS)
            continue;
        assert_string_equal(url.scheme, "file");
        assert_string_equal(url.path, "/kv");
        assert_int_equal(url.n_options, n);
        assert_string_equal(kvpi_url_option(&url, "o15"), "150");
        assert_null(kvpi_url_option(&url, "o16"));
        assert_int_equal(kvpi_url_all_used(&url, NULL, 0), KVP_E_ARG);
        for (unsigned i = 0; i < n; i++)
            assert_non_null(kvpi_url_option(&url, url.names[i]));
        assert_int_equal(kvpi_url_all_used(&url, NULL, 0), KVP_OK);
    }
}

/* -------------------------------------------------------------------------------------- secrets */

static char folder[] = "/tmp/kvp-url-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[2][100];
    static unsigned turn;
    char *out = path[turn++ % 2];
    snprintf(out, sizeof path[0], "%s/%s", folder, name);
    return out;
}

static void write_file(const char *name, const char *text, mode_t mode)
{
    FILE *file = fopen(in_folder(name), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    fclose(file);
    assert_int_equal(chmod(in_folder(name), mode), 0);
}

static kvp_status open_with(const char *name, const char *secret, kvp_store **out_store,
                            char why[300])
{
    char url[300];
    snprintf(url, sizeof url, "file:%s?size=1MiB%s%s", in_folder("kv"), name ? "&secret=file:" : "",
             name ? in_folder(name) : "");
    kvp_store_config config = record_config(url);
    config.secret = secret;
    config.secret_bytes = secret ? strlen(secret) : 0;
    return kvp_store_open(&config, out_store, why, 300);
}

#define SECRET "0123456789 abcdef"

static void note_found(void *context, const kvp_store_record *record)
{
    *(uint32_t *)context = record->found;
}

/* What a look finds of the only record. */
static uint32_t look_with(const char *secret)
{
    char url[300], why[300];
    uint32_t found = UINT32_MAX;
    kvp_store_scan_options options;
    kvp_store_scan_options_init(&options);
    options.depth = KVP_SCAN_PAYLOADS;
    options.record = note_found;
    options.context = &found;
    snprintf(url, sizeof url, "file:%s?secret=file:%s", in_folder("kv"), in_folder(secret));
    assert_int_equal(kvp_store_scan(url, &options, why, sizeof why), KVP_OK);
    return found;
}

TEST(test_a_secret_in_a_file_is_that_of_the_configuration)
{
    static const char *const texts[] = {SECRET, SECRET "\n", " \t" SECRET "\r\n"};
    char why[300];
    kvp_store *store;
    struct record records[1];
    record_make(records, 0, 0, 0);
    for (size_t i = 0; i < 3; i++) {
        write_file("secret", texts[i], 0600);
        assert_int_equal(open_with("secret", NULL, &store, why), KVP_OK);
        const uint32_t result = record_put(store, records);
        assert_int_equal(result, i == 0 ? KVP_STORE_OK : KVP_STORE_KNOWN);
        assert_int_equal(record_get(store, records), KVP_STORE_OK);
        kvp_store_close(store);
        assert_int_equal(open_with(NULL, SECRET, &store, why), KVP_OK);
        assert_int_equal(record_get(store, records), KVP_STORE_OK);
        kvp_store_close(store);
    }
    /* An operator's look takes it from the URL, too. */
    write_file("other", "another secret it is", 0600);
    assert_int_equal(look_with("secret"), KVP_FOUND_GOOD);
    assert_int_equal(look_with("other"), KVP_BAD_CODE);
    assert_int_equal(open_with("other", NULL, &store, why), KVP_OK);
    assert_int_equal(record_get(store, records), KVP_STORE_BAD);
    kvp_store_stats stats;
    assert_int_equal(kvp_store_stats_get(store, &stats), KVP_OK);
    assert_int_equal(stats.bad[KVP_BAD_CODE], 1);
    kvp_store_close(store);
}

/* Bytes, and blanks around them: 1024 of a secret, and 255 blanks at most. */
TEST(test_how_long_a_secret_is)
{
    static const struct {
        unsigned n_bytes, n_blanks;
        kvp_status status;
    } cases[] = {{15, 20, KVP_E_ARG},  {16, 0, KVP_OK},     {16, 1200, KVP_OK},
                 {1024, 0, KVP_OK},    {1024, 255, KVP_OK}, {1024, 256, KVP_E_ARG},
                 {1025, 0, KVP_E_ARG}, {0, 16, KVP_E_ARG}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1300] = "", why[300];
        kvp_store *store = NULL;
        memset(text, ' ', cases[i].n_blanks);
        memset(text + cases[i].n_blanks / 2, 'x', cases[i].n_bytes);
        for (unsigned n = cases[i].n_blanks / 2; n < cases[i].n_blanks; n++)
            text[cases[i].n_bytes + n] = '\n';
        write_file("secret", text, 0600);
        assert_int_equal(open_with("secret", NULL, &store, why), cases[i].status);
        kvp_store_close(store);
    }
}

TEST(test_what_others_may_read_is_no_secret)
{
    char long_text[1100];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = 0;
    write_file("group", SECRET, 0640);
    write_file("world", SECRET, 0604);
    write_file("writable", SECRET, 0602);
    write_file("short", "0123456789abcde\n", 0600);
    write_file("long", long_text, 0600);
    write_file("good", SECRET, 0400);
    assert_int_equal(symlink(in_folder("good"), in_folder("link")), 0);
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    static const struct {
        const char *name;
        const char *said;
    } cases[] = {
        {"group", "chmod 600"},  {"world", "chmod 600"},     {"writable", "chmod 600"},
        {"short", "16 to 1024"}, {"long", "16 to 1024"},     {"link", "link"},
        {"pipe", "no file"},     {"absent", "No such file"}, {".", "no file"},
    };
    char why[300];
    scoped_store *store;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(open_with(cases[i].name, NULL, &store, why), KVP_E_ARG);
        if (!strstr(why, cases[i].said) || strstr(why, SECRET))
            fail_msg("%s: %s", cases[i].name, why);
    }
    assert_int_equal(open_with("good", SECRET, &store, why), KVP_E_ARG);
    assert_non_null(strstr(why, "both have a secret"));
    assert_int_equal(open_with("good", NULL, &store, why), KVP_OK);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) && mkdir(in_folder("kv"), 0700) == 0 ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

TEST_MAIN(make_folder, remove_folder)
