/* cpu: what this processor can do, and the system lets programs do. */
#ifndef KVPI_ATTENTION_CPU_H
#define KVPI_ATTENTION_CPU_H

enum {
    KVPI_CPU_AVX2 = 1,        /* with FMA and F16C */
    KVPI_CPU_AVX512 = 2,      /* F, BW, DQ, VL; and all of the above */
    KVPI_CPU_AVX512_BF16 = 4, /* with VNNI; and all of the above */
    KVPI_CPU_AVX512_FP16 = 8, /* and all of the above */
    KVPI_CPU_AMX = 16,        /* tiles of bf16; and all of the above */
    KVPI_CPU_AMD = 32         /* the vendor */
};

/* Bits of the above. The first call asks the system for the use of tiles. Thread: any. */
unsigned kvpi_cpu(void);

#endif
