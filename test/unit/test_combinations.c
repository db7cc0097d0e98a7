/* The list of features that go together (test/combinations.txt): kvp_config_check and
 * kvp_cache_bytes refuse exactly the pairs that it says, the first one with its words. */
#include <stdio.h>
#include <string.h>

#include "world.h"

enum { LINE = 256, REFUSALS = 64 };

struct feature {
    const char *name;
    void (*ask)(kvp_config *config);
};

/* It takes these fields of the configuration. */
#define ASKS(name, ...)                                                                            \
    static void name(kvp_config *config)                                                           \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
    }                                                                                              \
    struct feature

ASKS(groups, config->n_groups = 2);
ASKS(windows, config->groups[0] = (kvp_group){4, 32, 0});

static void chunks(kvp_config *config) /* beside a window: in another group */
{
    const uint32_t group = config->groups[0].recent_tokens > 0;
    config->n_groups += group;
    config->groups[group] = (kvp_group){KVP_CHUNKED, 32, 0};
}

ASKS(states, config->state_slots = 8); /* and rings, which need nothing else */
ASKS(trees, config->max_tree_tokens = 8);
ASKS(host, config->host_blocks = 64);
ASKS(once, config->host_blocks = 64, config->keep_evicted = KVP_EVICTED_KEEP_ONCE);
ASKS(keep, config->commit_policy = KVP_KEEP);
ASKS(steps, config->steps = KVP_STEPS_OVERLAPPED);
ASKS(quotas, config->quotas = 1);
ASKS(policy, config->policy = KVP_POLICY_LEARNED);
ASKS(units, config->unit_tokens = config->block_tokens / 2);
ASKS(stores, config->host_blocks = 64, config->max_loads = 4);
ASKS(events, config->max_events = 100);
ASKS(sizes, config->groups[0].block_tokens = 2 * config->block_tokens);
ASKS(retained, config->groups[0].recent_tokens = 32, config->retain_tokens = KVP_RETAIN_PROMPTS);

static const struct feature features[] = {
    {"groups", groups},    {"windows", windows}, {"chunks", chunks}, {"states", states},
    {"rings", states},     {"trees", trees},     {"host", host},     {"once", once},
    {"keep", keep},        {"steps", steps},     {"quotas", quotas}, {"policy", policy},
    {"units", units},      {"stores", stores},   {"events", events}, {"sizes", sizes},
    {"retained", retained}};

enum { FEATURES = sizeof features / sizeof *features };

/* What the list says of kvp_config_check; gives the number of lines. */
static uint32_t read_refusals(char (*lines)[LINE])
{
    char line[LINE];
    uint32_t n = 0;
    FILE *file = fopen(KVP_COMBINATIONS, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\r\n")] = 0;
        if (strncmp(line, "refused ", 8) == 0 && strstr(line, " kvp_config_check: ")) {
            assert_true(n < REFUSALS);
            memcpy(lines[n++], line, sizeof line);
        }
    }
    fclose(file);
    return n;
}

/* The line of the pair; NULL: it is not refused. */
static const char *refusal_of(char (*lines)[LINE], uint32_t n, const char *a, const char *b)
{
    char begin[LINE];
    snprintf(begin, sizeof begin, "refused %s %s ", a, b);
    for (uint32_t i = 0; i < n; i++)
        if (strncmp(lines[i], begin, strlen(begin)) == 0)
            return lines[i] + strlen(begin);
    return NULL;
}

TEST(test_exactly_these_pairs_are_refused)
{
    static char lines[REFUSALS][LINE];
    const uint32_t n = read_refusals(lines);
    uint32_t n_refused = 0;
    for (uint32_t i = 0; i < FEATURES; i++) {
        for (uint32_t k = i; k < FEATURES; k++) { /* with itself: by itself */
            const char *expected = refusal_of(lines, n, features[i].name, features[k].name);
            char refused[2 * LINE];
            kvp_config config;
            kvp_why why;
            kvp_config_init(&config);
            features[i].ask(&config);
            if (k != i)
                features[k].ask(&config);
            config.host_state_slots = config.state_slots > 0 && config.host_blocks > 0 ? 8 : 0;
            const kvp_status status = kvp_config_check(&config, &why);
            snprintf(refused, sizeof refused, "%s kvp_config_check: %s", kvp_status_name(status),
                     why.text);
            if (status != KVP_OK || expected != NULL)
                assert_string_equal(refused, expected != NULL ? expected : "what the list allows");
            n_refused += status != KVP_OK;
            size_t n_bytes;
            assert_status(status, kvp_cache_bytes(&config, &n_bytes));
        }
    }
    assert_int_equal(n_refused, n); /* each line is of two of these */
}

TEST_MAIN(NULL, NULL)
