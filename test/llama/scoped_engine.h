/* An engine that ends with its scope. After mocka.h. */
#ifndef SCOPED_ENGINE_H
#define SCOPED_ENGINE_H

#include <kvpager/llama.h>

static inline void end_engine(kvp_llama **engine)
{
    kvp_llama_destroy(*engine);
}

#define scoped_engine ENDED_BY(end_engine) kvp_llama

#endif
