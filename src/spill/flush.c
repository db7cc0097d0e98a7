#include "spill/state.h"
void kvpi_flush_synced(kvp_spill *spill, uint32_t result)
{
    spill->flush.result = result;
}
