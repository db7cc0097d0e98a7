/* What a config.json says of a model's weights beside attention. */
#ifndef KVPI_EXPERTS_H
#define KVPI_EXPERTS_H

#include "tool/models/config/layers.h"

/* Read sizes of embeddings, MLPs and experts. What is wrong or not there never fails: it is said in
 * model->unknown.
 *
 * Gives:   model    mlp, except mlp.hidden, which is read before; experts, n_mlp_layers
 */
void kvpi_experts_read(const kvpi_entries *reader, const kvpi_layers *layers, kvpi_model *model);

#endif
