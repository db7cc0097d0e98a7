/* f32_model: a model whose weights do not amplify rounding, for tests that compare logits. */
#ifndef F32_MODEL_H
#define F32_MODEL_H

#include <stdint.h>

struct llama_model;

/* The first layers of a Llama's file, each weight in f32. Ends the program where that cannot be
 * had; NULL: llama.cpp refuses it. */
struct llama_model *f32_model_load(const char *path, uint32_t n_layers);

#endif
