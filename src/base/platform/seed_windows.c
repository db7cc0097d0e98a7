/* seed_windows: random bits from the system, as seed.c has them elsewhere. */
#include <kvpager/seed.h>

#include "base/platform/which.h"

#if KVPI_WINDOWS

#include <string.h>
#include <windows.h>

#include <bcrypt.h>

kvp_status kvp_random_seed(uint64_t *out_seed)
{
    uint8_t bytes[sizeof(*out_seed)];
    if (out_seed == NULL) {
        return KVP_E_ARG;
    }
    if (BCryptGenRandom(NULL, bytes, sizeof(bytes), BCRYPT_USE_SYSTEM_PREFERRED_RNG) < 0) {
        return KVP_E_IO;
    }
    memcpy(out_seed, bytes, sizeof(bytes));
    return KVP_OK;
}

#endif
