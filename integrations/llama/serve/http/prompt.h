/* prompt: what a request asks the model, as tokens. */
#ifndef KVPI_SERVE_PROMPT_H
#define KVPI_SERVE_PROMPT_H

#include "fields.h"

/* Of a completion: a string, or an array of token ids, or an array of one of these. */
int32_t *kvpi_prompt_completion(const kvpi_api *api, const kvpi_fields *fields, uint32_t *out_n);

/* Of a chat: its messages, put into the model's template. */
int32_t *kvpi_prompt_chat(const kvpi_api *api, const kvpi_fields *fields, uint32_t *out_n);

#endif
