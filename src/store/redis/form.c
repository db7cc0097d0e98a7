/* form: pieces of records into spans. */
#include "store/redis/form.h"

#include <string.h>

size_t kvpi_form_rest(size_t payload_bytes)
{
    enum { OWN = 32 }; /* of a block, for the server's own head of a string */
    const size_t n_bytes = payload_bytes + OWN;
    size_t step = 1;
    while (step * 8 <= n_bytes)
        step *= 2;
    const size_t piece = n_bytes / step * step - OWN;
    return payload_bytes - piece;
}

size_t kvpi_form_payload(const struct kvpi_store_op *op)
{
    size_t n_bytes = 0;
    for (uint32_t i = 1; i < op->n_spans; i++)
        n_bytes += op->spans[i].n_bytes;
    return n_bytes;
}

/* Bytes of the record from `at` on. */
static void scatter(const struct kvpi_store_op *op, size_t at, const char *bytes, size_t n_bytes)
{
    for (uint32_t i = 0; i < op->n_spans && n_bytes > 0; i++) {
        const struct kvpi_span *span = &op->spans[i];
        if (at >= span->n_bytes) {
            at -= span->n_bytes;
            continue;
        }
        const size_t n = span->n_bytes - at < n_bytes ? span->n_bytes - at : n_bytes;
        memcpy((char *)span->bytes + at, bytes, n);
        bytes += n;
        n_bytes -= n;
        at = 0;
    }
}

/* The check of the header says what it is. */
static void keep_beginning(struct kvpi_store_op *op, const char *bytes, size_t n_bytes)
{
    const struct kvpi_span *header = &op->spans[0];
    op->is_other_length = 1;
    memset(header->bytes, 0, header->n_bytes);
    memcpy(header->bytes, bytes, n_bytes < header->n_bytes ? n_bytes : header->n_bytes);
}

void kvpi_form_take(struct kvpi_store_op *op, const char *bytes, size_t n_bytes)
{
    if (n_bytes == op->spans[0].n_bytes + kvpi_form_payload(op))
        scatter(op, 0, bytes, n_bytes);
    else
        keep_beginning(op, bytes, n_bytes);
}

void kvpi_form_take_field(struct kvpi_store_op *op, int field, const char *bytes, size_t n_bytes)
{
    const size_t header = op->spans[0].n_bytes;
    const size_t payload = kvpi_form_payload(op);
    const size_t begins[KVPI_FORM_FIELDS + 1] = {0, header, header + kvpi_form_rest(payload),
                                                 header + payload};
    if (n_bytes == begins[field + 1] - begins[field])
        scatter(op, begins[field], bytes, n_bytes);
    else if (field == 0)
        keep_beginning(op, bytes, n_bytes);
    else
        op->is_other_length = 1;
}
