/* models: which libllama, models and contexts are served, and why others are refused. */
#ifndef KVPI_LLAMA_MODELS_H
#define KVPI_LLAMA_MODELS_H

#include <kvpager/types.h>

#include <llama.h>
#include <stddef.h>

/* The function that fills a llama_context_params, as libllama has it. */
typedef struct llama_context_params (*kvpi_models_defaults)(void);

/* A function without arguments that returns a struct of more than 16 bytes, whatever its type. */
typedef void (*kvpi_models_function)(void);

/* How many bytes that function writes; 0: it cannot be told on this processor. */
size_t kvpi_models_size(kvpi_models_function defaults);

/* Does the library that has this function fit our llama.h? Else `why` says what differs. */
int kvpi_models_fits(kvpi_models_defaults defaults, kvp_why *why);

/* The same for what programs pass beside: llama_model_params, and those of a sampler chain. */
int kvpi_models_fits_programs(kvpi_models_function model_defaults, kvp_why *why);

/* Is the context refused, for this model? Then `why` says so. */
int kvpi_models_refuses(const struct llama_model *model, const struct llama_context_params *params,
                        kvp_why *why);

/* Does the model attend in chunks, not in windows? Then `why` says so. */
int kvpi_models_refuses_chunks(const struct llama_model *model, kvp_why *why);

/* `why` says that the field is refused, and why. Always 1. */
int kvpi_models_say(kvp_why *why, const char *field, const char *text);

#endif
