/* prompt: strings, token ids and messages. NULL is a refusal, except where it says no memory. */
#include "prompt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGES_MOST = 4096 };

int32_t *kvpi_api_tokenize(const kvpi_api *api, const char *text, size_t n_bytes, int add_special,
                           uint32_t *out_n)
{
    if (n_bytes > INT32_MAX / 8)
        return NULL;
    int32_t n = -((int32_t)n_bytes + 8);
    int32_t *tokens = NULL;
    for (int tried = 0; tried < 2 && n < 0; tried++) {
        const int32_t capacity = -n;
        int32_t *larger = realloc(tokens, (size_t)capacity * sizeof *tokens);
        if (larger == NULL) {
            free(tokens);
            return NULL;
        }
        tokens = larger;
        n = llama_tokenize(api->vocab, text, (int32_t)n_bytes, tokens, capacity, add_special != 0,
                           true);
    }
    *out_n = n > 0 ? (uint32_t)n : 0;
    return tokens;
}

/* ---------------------------------------------------------------------------------- completions */

static int32_t *read_ids(const kvpi_api *api, const json_t *array, kvpi_refusal *refusal,
                         uint32_t *out_n)
{
    const size_t n = json_array_size(array);
    const int32_t n_vocab = llama_vocab_n_tokens(api->vocab);
    int32_t *tokens = calloc(n + 1, sizeof *tokens);
    for (size_t i = 0; tokens != NULL && i < n; i++) {
        const json_t *id = json_array_get(array, i);
        const json_int_t x = json_integer_value(id);
        if (!json_is_integer(id) || x < 0 || x >= n_vocab) {
            free(tokens);
            return kvpi_refuse(refusal, 400, "prompt", "prompt has an id that is no token");
        }
        tokens[i] = (int32_t)x;
    }
    *out_n = (uint32_t)n;
    return tokens;
}

int32_t *kvpi_prompt_completion(const kvpi_api *api, const kvpi_fields *fields, uint32_t *out_n)
{
    json_t *prompt = kvpi_fields_get(fields, "prompt");
    if (json_is_array(prompt) && json_array_size(prompt) > 0 &&
        !json_is_integer(json_array_get(prompt, 0))) {
        if (json_array_size(prompt) > 1)
            return kvpi_refuse(fields->refusal, 400, "prompt",
                               "prompt: several prompts in one request are not supported");
        prompt = json_array_get(prompt, 0);
    }
    if (json_is_string(prompt))
        return kvpi_api_tokenize(api, json_string_value(prompt), json_string_length(prompt), 1,
                                 out_n);
    if (json_is_array(prompt))
        return read_ids(api, prompt, fields->refusal, out_n);
    return kvpi_refuse(fields->refusal, 400, "prompt",
                       "prompt must be a string or an array of token ids");
}

/* ---------------------------------------------------------------------------------------- chats */

/* The text of a message's parts; they are made one after the other in `room`. */
static const char *join_parts(const json_t *parts, size_t number, char *room, kvpi_refusal *refusal)
{
    char field[64], text[160];
    char *end = room;
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const char *type = json_string_value(json_object_get(part, "type"));
        const json_t *words = json_object_get(part, "text");
        if (type == NULL || strcmp(type, "text") != 0 || !json_is_string(words)) {
            (void)snprintf(field, sizeof field, "messages[%zu].content[%zu].type", number, i);
            (void)snprintf(text, sizeof text, "%s: %.60s is not supported, only text", field,
                           type != NULL ? type : "a part without a type");
            return kvpi_refuse(refusal, 400, field, text);
        }
        memcpy(end, json_string_value(words), json_string_length(words));
        end += json_string_length(words);
    }
    *end = '\0';
    return room;
}

static size_t parts_bytes(const json_t *messages)
{
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *content = json_object_get(json_array_get(messages, i), "content");
        for (size_t k = 0; k < json_array_size(content); k++)
            n += json_string_length(json_object_get(json_array_get(content, k), "text"));
        n++;
    }
    return n;
}

static int read_message(const json_t *message, size_t number, char **room,
                        llama_chat_message *out_message, kvpi_refusal *refusal)
{
    char field[64], text[120];
    const json_t *content = json_object_get(message, "content");
    const char *role = json_string_value(json_object_get(message, "role"));
    if (json_array_size(json_object_get(message, "tool_calls")) > 0) {
        (void)snprintf(field, sizeof field, "messages[%zu].tool_calls", number);
        (void)snprintf(text, sizeof text, "%s is not supported", field);
        (void)kvpi_refuse(refusal, 400, field, text);
        return -1;
    }
    if (role == NULL || !(json_is_string(content) || json_is_array(content))) {
        (void)snprintf(field, sizeof field, "messages[%zu]%s", number,
                       role == NULL ? ".role" : ".content");
        (void)snprintf(text, sizeof text, "%s must be a string", field);
        (void)kvpi_refuse(refusal, 400, field, text);
        return -1;
    }
    *out_message = (llama_chat_message){role, json_string_value(content)};
    if (json_is_array(content)) {
        out_message->content = join_parts(content, number, *room, refusal);
        if (out_message->content == NULL)
            return -1;
        *room += strlen(*room) + 1;
    }
    return 0;
}

static int32_t *apply_template(const kvpi_api *api, const llama_chat_message *messages, size_t n,
                               kvpi_refusal *refusal, uint32_t *out_n)
{
    size_t capacity = 1024;
    for (size_t i = 0; i < n; i++)
        capacity += 2 * (strlen(messages[i].role) + strlen(messages[i].content)) + 64;
    char *text = NULL;
    int32_t n_bytes = -1;
    for (int tried = 0; tried < 2; tried++) {
        char *larger = realloc(text, capacity);
        if (larger == NULL || capacity > INT32_MAX)
            break;
        text = larger;
        n_bytes = llama_chat_apply_template(api->chat_template, messages, n, true, text,
                                            (int32_t)capacity);
        if (n_bytes < 0 || (size_t)n_bytes <= capacity)
            break;
        capacity = (size_t)n_bytes;
    }
    int32_t *tokens = NULL;
    if (n_bytes < 0)
        (void)kvpi_refuse(refusal, 400, "messages", "messages: the chat template refuses them");
    else
        tokens = kvpi_api_tokenize(api, text, (size_t)n_bytes, 1, out_n);
    free(text);
    return tokens;
}

int32_t *kvpi_prompt_chat(const kvpi_api *api, const kvpi_fields *fields, uint32_t *out_n)
{
    int32_t *tokens = NULL;
    const json_t *list = kvpi_fields_get(fields, "messages");
    const size_t n = json_array_size(list);
    if (api->chat_template == NULL)
        return kvpi_refuse(fields->refusal, 400, "messages", api->no_chat);
    if (!json_is_array(list) || n == 0 || n > MESSAGES_MOST)
        return kvpi_refuse(fields->refusal, 400, "messages",
                           "messages must be an array of 1 to 4096 messages");
    llama_chat_message *messages = calloc(n, sizeof *messages);
    char *room = malloc(parts_bytes(list) + 1), *next = room;
    size_t i = 0;
    while (messages != NULL && room != NULL && i < n &&
           read_message(json_array_get(list, i), i, &next, &messages[i], fields->refusal) == 0)
        i++;
    if (messages != NULL && room != NULL && i == n)
        tokens = apply_template(api, messages, n, fields->refusal, out_n);
    free(messages);
    free(room);
    return tokens;
}
