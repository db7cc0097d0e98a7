/* make: from the command line to an engine. */
#ifndef KVPI_SERVE_MAKE_H
#define KVPI_SERVE_MAKE_H

#include "loop.h"

/* Gives loop->engine with its parts and limits, and loop->adapter. -1: `out_why` names the option,
 * or what llama.cpp has refused; what was made is there, and loop.c frees it. */
int kvpi_make_engine(kvpi_loop *loop, struct llama_model *model, kvp_why *out_why);

#endif
