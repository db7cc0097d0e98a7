/* samplers: a few of llama.cpp's, by their descriptions. */
#define _POSIX_C_SOURCE 200809L /* strdup */

#include "fake.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHAIN_MOST = 16, LAST_MOST = 256 };

typedef enum kind { CHAIN, GREEDY, DIST, TOP_K, TOP_P, MIN_P, TEMP, GRAMMAR, PENALTIES, BIAS } kind;

struct llama_sampler {
    kind kind;
    int32_t n; /* top_k; last_n; how much of the grammar was accepted */
    float a, b, c;
    uint64_t random;
    char *text; /* of the grammar: the only string that it accepts */
    llama_logit_bias *bias;
    uint32_t n_parts; /* of the chain; of the bias; of the tokens that were accepted */
    llama_token last[LAST_MOST];
    struct llama_sampler *parts[CHAIN_MOST];
};

static struct llama_sampler *make(kind of)
{
    struct llama_sampler *sampler = calloc(1, sizeof *sampler);
    if (sampler == NULL)
        fake_broken("no memory", 0, 0);
    sampler->kind = of;
    return sampler;
}

struct llama_sampler_chain_params llama_sampler_chain_default_params(void)
{
    return (struct llama_sampler_chain_params){.no_perf = true};
}

struct llama_sampler *llama_sampler_chain_init(struct llama_sampler_chain_params params)
{
    (void)params;
    return make(CHAIN);
}

void llama_sampler_chain_add(struct llama_sampler *chain, struct llama_sampler *sampler)
{
    if (chain->n_parts == CHAIN_MOST)
        fake_broken("a chain of so many", CHAIN_MOST, 0);
    chain->parts[chain->n_parts++] = sampler;
}

struct llama_sampler *llama_sampler_init_greedy(void)
{
    return make(GREEDY);
}

struct llama_sampler *llama_sampler_init_dist(uint32_t seed)
{
    struct llama_sampler *sampler = make(DIST);
    sampler->random = seed * (uint64_t)0x9E3779B97F4A7C15u + 1;
    return sampler;
}

struct llama_sampler *llama_sampler_init_top_k(int32_t k)
{
    struct llama_sampler *sampler = make(TOP_K);
    sampler->n = k;
    return sampler;
}

static struct llama_sampler *make_of(kind of, float a)
{
    struct llama_sampler *sampler = make(of);
    sampler->a = a;
    return sampler;
}

struct llama_sampler *llama_sampler_init_top_p(float p, size_t min_keep)
{
    (void)min_keep;
    return make_of(TOP_P, p);
}

struct llama_sampler *llama_sampler_init_min_p(float p, size_t min_keep)
{
    (void)min_keep;
    return make_of(MIN_P, p);
}

struct llama_sampler *llama_sampler_init_temp(float t)
{
    return make_of(TEMP, t);
}

/* The grammar `root ::= "text"` and no other. */
struct llama_sampler *llama_sampler_init_grammar(const struct llama_vocab *vocab, const char *text,
                                                 const char *root)
{
    static const char begin[] = "root ::= \"";
    const size_t n = strlen(text);
    (void)vocab;
    if (strcmp(root, "root") != 0 || n < sizeof begin ||
        memcmp(text, begin, sizeof begin - 1) != 0 || text[n - 1] != '"')
        return NULL;
    struct llama_sampler *sampler = make(GRAMMAR);
    sampler->text = strdup(text + sizeof begin - 1);
    if (sampler->text != NULL)
        sampler->text[strlen(sampler->text) - 1] = '\0';
    return sampler;
}

struct llama_sampler *llama_sampler_init_penalties(int32_t n_vocab, int32_t last_n, float repeat,
                                                   float frequency, float presence)
{
    struct llama_sampler *sampler = make_of(PENALTIES, repeat);
    (void)n_vocab;
    sampler->n = last_n < LAST_MOST ? last_n : LAST_MOST;
    sampler->b = frequency;
    sampler->c = presence;
    return sampler;
}

struct llama_sampler *llama_sampler_init_logit_bias(int32_t n_vocab, int32_t n,
                                                    const llama_logit_bias *bias)
{
    struct llama_sampler *sampler = make(BIAS);
    (void)n_vocab;
    sampler->bias = calloc((size_t)n + 1, sizeof *bias);
    if (sampler->bias == NULL)
        fake_broken("no memory", n, 0);
    memcpy(sampler->bias, bias, (size_t)n * sizeof *bias);
    sampler->n_parts = (uint32_t)n;
    return sampler;
}

void llama_sampler_free(struct llama_sampler *sampler)
{
    if (sampler == NULL)
        return;
    for (uint32_t i = 0; sampler->kind == CHAIN && i < sampler->n_parts; i++)
        llama_sampler_free(sampler->parts[i]);
    free(sampler->text);
    free(sampler->bias);
    free(sampler);
}

void llama_sampler_accept(struct llama_sampler *sampler, llama_token token)
{
    if (sampler->kind == CHAIN)
        for (uint32_t i = 0; i < sampler->n_parts; i++)
            llama_sampler_accept(sampler->parts[i], token);
    if (sampler->kind == PENALTIES && sampler->n > 0)
        sampler->last[sampler->n_parts++ % (uint32_t)sampler->n] = token;
    if (sampler->kind == GRAMMAR)
        sampler->n++;
}

/* ------------------------------------------------------------------------------------- applying */

static int by_logit(const void *a, const void *b)
{
    const llama_token_data *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit < y->logit ? 1 : -1;
    return x->id < y->id ? -1 : 1;
}

static void sort(llama_token_data_array *array)
{
    double sum = 0;
    qsort(array->data, array->size, sizeof *array->data, by_logit);
    array->sorted = true;
    for (size_t i = 0; i < array->size; i++)
        sum += exp((double)array->data[i].logit - (double)array->data[0].logit);
    for (size_t i = 0; i < array->size; i++)
        array->data[i].p =
            (float)(exp((double)array->data[i].logit - (double)array->data[0].logit) / sum);
}

static void cut(const struct llama_sampler *sampler, llama_token_data_array *array)
{
    size_t keep = 0;
    double sum = 0;
    sort(array);
    if (sampler->kind == TOP_K)
        keep = sampler->n <= 0 ? array->size : (size_t)sampler->n;
    else if (sampler->kind == TOP_P)
        while (keep < array->size && sum < (double)sampler->a)
            sum += (double)array->data[keep++].p;
    else
        while (keep < array->size && array->data[keep].p >= sampler->a * array->data[0].p)
            keep++;
    array->size = keep < array->size ? keep : array->size;
}

static void penalise(const struct llama_sampler *sampler, llama_token_data *data)
{
    const uint32_t most = (uint32_t)sampler->n;
    const uint32_t n = sampler->n_parts < most ? sampler->n_parts : most;
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++)
        count += sampler->last[i] == data->id;
    if (count == 0)
        return;
    data->logit = data->logit > 0 ? data->logit / sampler->a : data->logit * sampler->a;
    data->logit -= (float)count * sampler->b + sampler->c;
}

static void change(const struct llama_sampler *sampler, llama_token_data *data)
{
    switch (sampler->kind) {
    case TEMP: data->logit /= sampler->a; break;
    case PENALTIES: penalise(sampler, data); break;
    case BIAS:
        for (uint32_t i = 0; i < sampler->n_parts; i++)
            if (sampler->bias[i].token == data->id)
                data->logit += sampler->bias[i].bias;
        break;
    case GRAMMAR: {
        const unsigned char next = (size_t)sampler->n < strlen(sampler->text)
                                       ? (unsigned char)sampler->text[sampler->n]
                                       : 0;
        if (next != 0 ? data->id != next : data->id < FAKE_END)
            data->logit = -INFINITY;
        break;
    }
    default: break;
    }
}

static void select_one(struct llama_sampler *sampler, llama_token_data_array *array)
{
    sort(array);
    array->selected = 0;
    if (sampler->kind == GREEDY)
        return;
    sampler->random = sampler->random * 6364136223846793005u + 1442695040888963407u;
    double x = (double)(sampler->random >> 33) / 2147483648.0;
    for (size_t i = 0; i < array->size; i++) {
        array->selected = (int64_t)i;
        x -= (double)array->data[i].p;
        if (x < 0)
            break;
    }
}

void llama_sampler_apply(struct llama_sampler *sampler, llama_token_data_array *array)
{
    switch (sampler->kind) {
    case CHAIN:
        for (uint32_t i = 0; i < sampler->n_parts; i++)
            llama_sampler_apply(sampler->parts[i], array);
        break;
    case GREEDY:
    case DIST: select_one(sampler, array); break;
    case TOP_K:
    case TOP_P:
    case MIN_P: cut(sampler, array); break;
    default:
        for (size_t i = 0; i < array->size; i++)
            change(sampler, &array->data[i]);
        array->sorted = false;
    }
}
