/* A store on a real server over TLS, with certificates that the test makes: names, authorities and
 * clients that do not fit are refused with a sentence, and nothing hangs. */
#define _GNU_SOURCE
#include "redis_records.h"

#include "real_cluster.h"

static char folder[32];
static struct real_server server;  /* of the name localhost; TLS only */
static struct real_server strict;  /* and wants a certificate of its clients */
static struct real_server foreign; /* of the name kv.example */

static void run(const char *format, ...)
{
    char command[1000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    if (system(command) != 0)
        fail_msg("%s", command);
}

/* NAME.key, and NAME.crt by the authority's. */
static void make_certificate(const char *name, const char *authority, const char *subject)
{
    run("cd %s && printf 'subjectAltName=%s' >%s.ext && "
        "openssl req -newkey rsa:2048 -nodes -keyout %s.key -subj /CN=%s -out %s.csr "
        "2>/dev/null && "
        "openssl x509 -req -in %s.csr -CA %s.crt -CAkey %s.key -set_serial 7 -days 9 "
        "-extfile %s.ext -out %s.crt 2>/dev/null",
        folder, subject, name, name, name, name, name, authority, authority, name, name);
}

static void make_authority(const char *name)
{
    run("cd %s && openssl req -x509 -newkey rsa:2048 -nodes -keyout %s.key -subj /CN=%s -days 9 "
        "-out %s.crt 2>/dev/null",
        folder, name, name, name);
}

/* Paths, as a server's arguments have them. */
struct files {
    char cert[80], key[80], ca[80];
};

static struct files files_of(const char *certificate)
{
    struct files files;
    snprintf(files.cert, sizeof files.cert, "%s/%s.crt", folder, certificate);
    snprintf(files.key, sizeof files.key, "%s/%s.key", folder, certificate);
    snprintf(files.ca, sizeof files.ca, "%s/ca.crt", folder);
    return files;
}

/* It listens for TLS on a port of its own; wait_for_server() asks the other one. */
static void start_tls(struct real_server *out, const char *certificate, const char *clients)
{
    const struct files files = files_of(certificate);
    char port[16];
    int tls_port = free_port();
    snprintf(port, sizeof port, "%d", tls_port);
    const char *const options[] = {"--tls-port",
                                   port,
                                   "--tls-cert-file",
                                   files.cert,
                                   "--tls-key-file",
                                   files.key,
                                   "--tls-ca-cert-file",
                                   files.ca,
                                   "--tls-auth-clients",
                                   clients,
                                   NULL};
    start_server(out, options);
    snprintf(out->url, sizeof out->url, "rediss://localhost:%d", tls_port);
}

static kvp_status try_open(const char *url, kvp_store **out_store, char why[300])
{
    kvp_store_config config = config_of(url);
    *out_store = NULL;
    return kvpi_store_open(&config, &kvpi_redis_backend, out_store, why, 300);
}

static void expect_refused(const char *words, const char *format, ...)
{
    char url[400], why[300];
    kvp_store *store;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(url, sizeof url, format, arguments);
    va_end(arguments);
    if (try_open(url, &store, why) != KVP_E_IO || !strstr(why, words))
        fail_msg("%s: %s", url, why);
}

static void use(const char *url)
{
    static struct record records[2];
    char why[300];
    kvp_store *store;
    for (uint32_t threads = 0; threads < 2; threads++) {
        kvp_store_config config = config_of(url);
        config.threads = threads;
        if (kvpi_store_open(&config, &kvpi_redis_backend, &store, why, sizeof why) != KVP_OK)
            fail_msg("%s: %s", url, why);
        make_record(&records[0], threads + 1, 0, NULL);
        make_record(&records[1], threads + 1, 1, &records[0]);
        assert_int_equal(get(store, &records[0]), KVP_STORE_ABSENT);
        assert_int_equal(put(store, &records[0]), KVP_STORE_OK);
        assert_int_equal(put(store, &records[1]), KVP_STORE_OK);
        assert_int_equal(get(store, &records[0]), KVP_STORE_OK);
        assert_int_equal(get(store, &records[1]), KVP_STORE_OK);
        assert_true(have(store, records, 2) == 3);
        kvp_store_close(store);
    }
}

TEST(what_was_put_comes_back)
{
    char url[300];
    snprintf(url, sizeof url, "%s?ca=%s/ca.crt", server.url, folder);
    use(url);
    snprintf(url, sizeof url, "%s?ca=%s/ca.crt&cert=%s/client.crt&key=%s/client.key", strict.url,
             folder, folder, folder);
    use(url);
    snprintf(url, sizeof url, "%s?ca=%s/ca.crt&name=kv.example", foreign.url, folder);
    use(url);
}

/* Records that fill the buffers of the system many times over, all at once. */
TEST(large_ones)
{
    enum { LARGE = 1 << 20, N = 16 };
    char url[300];
    snprintf(url, sizeof url, "%s?ca=%s/ca.crt&connections=4", server.url, folder);
    kvp_store_config config = config_of(url);
    config.block_bytes[0] = LARGE;
    config.threads = 1;
    scoped_store *store = open_store(&config);
    static struct record records[N];
    uint8_t *kv = malloc(2 * N * BLOCKS * (size_t)LARGE);
    assert_non_null(kv);
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (unsigned i = 0; i < N; i++) {
            if (pass == 0)
                make_record(&records[i], i, 0, NULL);
            records[i].identity.digest.bytes[0] = (uint8_t)(200 + i);
            for (unsigned b = 0; b < BLOCKS; b++) {
                uint8_t *block = kv + ((size_t)(pass * N + i) * BLOCKS + b) * LARGE;
                records[i].blocks[b] = block;
                if (pass == 0)
                    input_pattern(block, LARGE, i * 7 + b);
            }
            const kvp_status status =
                pass == 0 ? kvp_store_put(store, &records[i].identity, records[i].blocks, i)
                          : kvp_store_get(store, &records[i].identity, records[i].blocks, i);
            assert_int_equal(status, KVP_OK);
        }
        for (unsigned i = 0; i < N; i++)
            assert_int_equal(input_result(store), KVP_STORE_OK);
    }
    const size_t n_bytes = N * BLOCKS * (size_t)LARGE;
    assert_memory_equal(kv, kv + n_bytes, n_bytes);
    free(kv);
}

TEST(what_does_not_fit_is_refused)
{
    expect_refused("the certificate is refused: hostname mismatch", "%s?ca=%s/ca.crt", foreign.url,
                   folder);
    expect_refused("the certificate is refused: hostname mismatch", "%s?ca=%s/ca.crt&name=other",
                   server.url, folder);
    expect_refused("the certificate is refused: IP address mismatch",
                   "rediss://127.0.0.1%s?ca=%s/ca.crt", strrchr(server.url, ':'), folder);
    expect_refused("the certificate is refused:", "%s?ca=%s/other.crt", server.url, folder);
    expect_refused("the certificate is refused:", "%s", server.url);
    /* No certificate of ours, whose refusal may be lost when the server closes; TLS where there is
     * none; none where there is. */
    char url[200], why[300];
    struct record record;
    kvp_store *store;
    make_record(&record, 9, 0, NULL);
    for (int way = 0; way < 3; way++) {
        if (way == 0)
            snprintf(url, sizeof url, "%s?timeout=1s&ca=%s/ca.crt", strict.url, folder);
        else if (way == 1)
            snprintf(url, sizeof url, "rediss://localhost:%d?timeout=1s&ca=%s/ca.crt", server.port,
                     folder);
        else
            snprintf(url, sizeof url, "redis://localhost%s?timeout=1s", strrchr(server.url, ':'));
        if (try_open(url, &store, why) != KVP_OK)
            continue;
        assert_int_not_equal(get(store, &record), KVP_STORE_OK);
        kvp_store_close(store);
    }
}

TEST(files_that_are_none)
{
    static const struct {
        const char *options;
        const char *words;
    } cases[] = {{"ca=/nowhere", "ca \"/nowhere\""},
                 {"ca=%s/ca.crt&cert=%s/client.crt", "go together"},
                 {"ca=%s/ca.crt&key=%s/client.key", "go together"},
                 {"ca=%s/ca.crt&cert=%s/client.key&key=%s/client.key", "cert \""},
                 {"ca=%s/ca.crt&cert=%s/client.crt&key=%s/ca.key", "key \""},
                 {"ca=%s/ca.crt&name=", "name is empty"},
                 {"ca=%s/ca.crt&quota=1GiB", "no option \"quota\""}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        char options[200], url[400], why[300];
        kvp_store *store;
        snprintf(options, sizeof options, cases[i].options, folder, folder, folder);
        snprintf(url, sizeof url, "%s?%s", server.url, options);
        assert_int_equal(try_open(url, &store, why), KVP_E_ARG);
        if (!strstr(why, cases[i].words))
            fail_msg("%s: %s", url, why);
    }
}

/* A server that dies while a record is on its way, and one that stops. */
TEST(a_server_that_goes)
{
    struct real_server own = {0};
    struct record record;
    make_record(&record, 1, 0, NULL);
    start_tls(&own, "server", "no");
    char url[300];
    snprintf(url, sizeof url, "%s?ca=%s/ca.crt&timeout=1s", own.url, folder);
    kvp_store_config config = config_of(url);
    scoped_store *store = open_store(&config);
    assert_int_equal(put(store, &record), KVP_STORE_OK);
    kill(own.pid, SIGSTOP);
    assert_int_equal(get(store, &record), KVP_STORE_FAILED);
    assert_int_equal(get(store, &record), KVP_STORE_AWAY);
    stop_server(&own);
    for (int i = 0; i < 20; i++)
        assert_int_not_equal(get(store, &record), KVP_STORE_OK);
}

/* Three servers that name themselves localhost, as their certificate does. */
static void start_tls_cluster(struct real_cluster *cluster)
{
    const struct files files = files_of("server");
    const char *const more[] = {"--tls-cluster",
                                "--tls-cert-file",
                                files.cert,
                                "--tls-key-file",
                                files.key,
                                "--tls-ca-cert-file",
                                files.ca,
                                "--tls-auth-clients",
                                "no",
                                "--cluster-announce-hostname",
                                "localhost",
                                "--cluster-preferred-endpoint-type",
                                "hostname",
                                NULL};
    start_cluster(cluster, CLUSTER_PRIMARIES, more);
}

static kvp_store *open_tls_cluster(const struct real_cluster *cluster, const char *timeout)
{
    char url[300];
    snprintf(url, sizeof url, "rediss://localhost:%d?ca=%s/ca.crt&timeout=%s",
             cluster->tls_ports[1], folder, timeout);
    const kvp_store_config config = config_of(url);
    return open_store(&config);
}

/* Records of all three servers come back, over TLS alone, and a map of names that no certificate
 * has leads nowhere. */
TEST(a_cluster)
{
    enum { N = 15 };
    static struct record records[N];
    struct real_cluster cluster;
    start_tls_cluster(&cluster);
    kvp_store *store = open_tls_cluster(&cluster, "1h");
    for (unsigned i = 0; i < N; i++) {
        make_record(&records[i], i + 1, 0, NULL);
        assert_int_equal(put(store, &records[i]), KVP_STORE_OK);
    }
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(get(store, &records[i]), KVP_STORE_OK);
    for (int i = 0; i < CLUSTER_PRIMARIES; i++)
        assert_true(ask(&cluster.servers[i], "DBSIZE") > 0);
    kvp_store_close(store);

    const char *const names = "cluster-preferred-endpoint-type";
    for (int i = 0; i < CLUSTER_PRIMARIES; i++)
        assert_int_equal(ask(&cluster.servers[i], "CONFIG SET %s ip", names), 1);
    store = open_tls_cluster(&cluster, "1s");
    for (unsigned i = 0; i < N; i++)
        assert_int_not_equal(get(store, &records[i]), KVP_STORE_OK);
    kvp_store_close(store);
    stop_cluster(&cluster);
}

TEST(without_secret_it_is_said)
{
    char why[300], text[300];
    kvp_store *store;
    assert_int_equal(try_open("redis://192.0.2.1:1?timeout=1s", &store, why), KVP_OK);
    assert_int_equal(kvp_store_describe(store, text, sizeof text), KVP_OK);
    assert_non_null(strstr(text, "no TLS and no secret"));
    kvp_store_close(store);
    assert_int_equal(try_open("rediss://192.0.2.1:1?timeout=1s", &store, why), KVP_OK);
    assert_int_equal(kvp_store_describe(store, text, sizeof text), KVP_OK);
    assert_null(strstr(text, "no TLS and no secret"));
    kvp_store_close(store);
}

int main(void)
{
    if (!redis_program() || system("command -v openssl >/dev/null") != 0) {
        puts("skipped: there is no redis-server (Debian: redis-tools), or no openssl");
        return 77;
    }
    snprintf(folder, sizeof folder, "/tmp/kvp-tls-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    make_authority("ca");
    make_authority("other");
    make_certificate("server", "ca", "DNS:localhost");
    make_certificate("foreign", "ca", "DNS:kv.example");
    make_certificate("client", "ca", "DNS:client");
    start_tls(&server, "server", "no");
    start_tls(&strict, "server", "yes");
    start_tls(&foreign, "foreign", "no");
    const int failed = run_all_tests(NULL, NULL);
    stop_server(&server);
    stop_server(&strict);
    stop_server(&foreign);
    run("rm -rf %s", folder);
    return failed;
}
