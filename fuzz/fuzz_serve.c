/* Any bytes as the body of a request to kvpager-serve, for the path that the first byte chooses: a
 * completion, a chat, or a text to tokenise. It becomes a job within the server's limits, or a
 * refusal that is JSON and names a member that is wrong or missing. Over the fake llama.cpp. */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../integrations/llama/serve/http/api.h"
#include "../integrations/llama/serve/http/fields.h"
#include "../test/llama/fake/fake.h"

#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CELLS = 4096, BLOCK_TOKENS = 16, RUNNING = 8 };

static struct llama_model model = {.architecture = "llama", .has_text = true};
static kvpi_options options;
static kvpi_loop loop = {.limits = {.block_tokens = BLOCK_TOKENS,
                                    .usable_blocks = CELLS / BLOCK_TOKENS,
                                    .watermark_blocks = 2,
                                    .max_seq_tokens = CELLS,
                                    .max_running = RUNNING,
                                    .arena_tokens = UINT64_C(1) << 22}};

static int is_within(double x, double lowest, double highest)
{
    return x >= lowest && x <= highest;
}

static void check_sampling(const kvpi_sampling *sampling)
{
    require(is_within((double)sampling->temperature, 0, 100));
    require(is_within((double)sampling->top_p, 0, 1) && is_within((double)sampling->min_p, 0, 1));
    require(is_within((double)sampling->repeat_penalty, 0.01 - FLT_EPSILON, 100));
    require(is_within((double)sampling->frequency_penalty, -2, 2));
    require(is_within((double)sampling->presence_penalty, -2, 2));
    require(sampling->top_k >= -1 && sampling->repeat_last_n >= 0);
    require(sampling->n_logprobs >= -1 && sampling->n_logprobs <= KVPI_LOGPROBS_MOST);
    require(sampling->n_biases <= KVPI_BIASES_MOST && sampling->seed != UINT32_MAX);
    for (uint32_t i = 0; i < sampling->n_biases; i++) {
        const llama_logit_bias *bias = &sampling->biases[i];
        require(bias->token >= 0 && bias->token < FAKE_TEXT_TOKENS);
        require(isinf(bias->bias) || is_within((double)bias->bias, -100, 100));
        for (uint32_t k = 0; k < i; k++)
            require(sampling->biases[k].token != bias->token);
    }
}

static void check_job(const kvpi_job *job)
{
    require(job->n_samples >= 1 && job->n_samples <= RUNNING && job->n_tokens >= 1);
    require(job->n_tokens <= kvpi_limits_prompt(&loop.limits, job->n_samples));
    require(job->max_new_tokens >= 1 &&
            job->max_new_tokens <= kvpi_limits_new(&loop.limits, job->n_tokens, job->n_samples));
    for (uint32_t i = 0; i < job->n_tokens; i++)
        require(job->tokens[i] >= 0 && job->tokens[i] < FAKE_TEXT_TOKENS);
    require(job->salt_bytes <= KVPI_SALT_BYTES_MOST && job->salt[job->salt_bytes] == '\0');
    require(job->stops.n <= KVPI_STOPS_MOST);
    for (size_t i = 0; i < job->stops.n; i++)
        require(job->stops.n_bytes[i] >= 1 && job->stops.n_bytes[i] <= KVPI_STOP_BYTES_MOST);
    for (uint32_t i = 0; i < job->n_samples; i++)
        require(job->samples[i].sampler.chain != NULL);
    check_sampling(&job->sampling);
}

/* The tokens are those of the text. */
static void check_text(const int32_t *tokens, uint32_t n, const json_t *text)
{
    char bytes[16];
    const char *at = json_string_value(text), *end = at + json_string_length(text);
    for (uint32_t i = 0; i < n; i++) {
        const int32_t n_bytes = llama_token_to_piece(llama_model_get_vocab(&model), tokens[i],
                                                     bytes, sizeof bytes, 0, true);
        require(n_bytes >= 1 && n_bytes <= end - at && memcmp(at, bytes, (size_t)n_bytes) == 0);
        at += n_bytes;
    }
    require(at == end);
}

/* The field, or what it is a part of, is in the body, or has to be. */
static void check_refusal(const json_t *body, const kvpi_refusal *refusal, const char *needed)
{
    char name[sizeof refusal->field];
    char *text = kvpi_refusal_json(refusal);
    require(text != NULL && refusal->status == 400 && refusal->text[0] != '\0');
    json_t *answer = json_loads(text, 0, NULL);
    const json_t *error = json_object_get(answer, "error");
    const char *field = json_string_value(json_object_get(error, "param"));
    require(json_string_length(json_object_get(error, "message")) > 0);
    require((field == NULL) == (body == NULL));
    if (field != NULL) {
        memcpy(name, refusal->field, sizeof name);
        name[strcspn(name, ".[")] = '\0';
        require(strcmp(field, refusal->field) == 0);
        require(json_object_get(body, name) != NULL || strcmp(name, needed) == 0);
    }
    json_decref(answer);
    free(text);
}

static void generate(const kvpi_api *api, json_t *body, int is_chat)
{
    kvpi_form form;
    kvpi_refusal refusal = {0};
    kvpi_job *job = kvpi_api_read(api, body, is_chat, &form, &refusal);
    require((job == NULL) == (refusal.status != 0));
    if (job == NULL) {
        check_refusal(body, &refusal, is_chat ? "messages" : "prompt");
        return;
    }
    check_job(job);
    require(form.is_chat == is_chat);
    const json_t *prompt = json_object_get(body, "prompt");
    if (!is_chat && json_is_string(prompt))
        check_text(job->tokens, job->n_tokens, prompt);
    kvpi_job_drop(job);
}

static void tokenize(const kvpi_api *api, json_t *body)
{
    uint32_t n;
    kvpi_refusal refusal = {0};
    int32_t *tokens = kvpi_api_read_text(api, body, &n, &refusal);
    require((tokens == NULL) == (refusal.status != 0));
    if (tokens == NULL)
        check_refusal(body, &refusal, "content");
    else
        check_text(tokens, n, json_object_get(body, "content"));
    free(tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kvpi_refusal refusal = {0};
    if (size < 1)
        return 0;
    kvpi_sampling_init(&options.sampling);
    options.predict = data[0] & 8 ? 5 : 0;
    const kvpi_api api = {.loop = &loop,
                          .options = &options,
                          .vocab = llama_model_get_vocab(&model),
                          .chat_template = data[0] & 4 ? NULL : "chatml",
                          .no_chat = "there is no chat template"};
    json_t *body = kvpi_api_parse((const char *)data + 1, size - 1, &refusal);
    if (body == NULL)
        check_refusal(NULL, &refusal, "");
    else if (data[0] % 4 == 2)
        tokenize(&api, body);
    else
        generate(&api, body, data[0] % 2);
    json_decref(body);
    return 0;
}
