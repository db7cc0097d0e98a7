#include "attn_impls.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <kvpager/attention.h>

enum { ALL = KVP_ATTENTION_AUTO };

static const struct {
    const char *name;
    uint32_t impl;
} names[] = {{"portable", KVP_ATTENTION_PORTABLE},
             {"avx2", KVP_ATTENTION_AVX2},
             {"avx512", KVP_ATTENTION_AVX512},
             {"avx512_bf16", KVP_ATTENTION_AVX512_BF16},
             {"avx512_fp16", KVP_ATTENTION_AVX512_FP16},
             {"amx", KVP_ATTENTION_AMX},
             {"neon", KVP_ATTENTION_NEON}};

static uint32_t chosen = ALL;
uint64_t attn_running_case;
uint32_t attn_running_impl;

int attn_impls_choose(int argc, char **argv)
{
    if (argc < 2)
        return 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(argv[1], names[i].name) == 0) {
            chosen = names[i].impl;
            return kvp_attention_has(chosen) ? 0 : 77;
        }
    }
    (void)fprintf(stderr, "no implementation is called %s\n", argv[1]);
    return 2;
}

int attn_impls_has(uint32_t impl)
{
    return (chosen == ALL || chosen == impl || impl == KVP_ATTENTION_REFERENCE) &&
           kvp_attention_has(impl);
}

int attn_name_the_case(void **state)
{
    (void)state;
    if (attn_running_case != 0)
        (void)fprintf(stderr, "case %u, implementation %u\n", (unsigned)attn_running_case,
                      (unsigned)attn_running_impl);
    attn_running_case = 0;
    return 0;
}
