/* request_parts.h - shared by the request_*.c files: the reader of a request, and its single values. */
#ifndef DSMOE_SERVE_REQUEST_PARTS_H
#define DSMOE_SERVE_REQUEST_PARTS_H

#include "formats/json.h"
#include "serve/request.h"

typedef struct request_reader {
    const json_node *root; /* an object */
    const request_limits *limits;
    request *r;
    request_error *error;
} request_reader;

/* ---- values: request_values.c ---------------------------------------------------------------- */

/* NULL if the member is absent or null. */
const json_node *request_member(const json_node *object, const char *name);

/* Describes a value for a message: -1, "a text", an array of 3. */
enum { REQUEST_VALUE_TEXT = 96 };
const char *request_describe(const json_node *node, char text[REQUEST_VALUE_TEXT]);

/* Refuses with "NAME is VALUE; it must be MUST". */
bool request_refuse_value(const request_reader *q, const char *name, const json_node *node,
                          const char *must);
bool request_refuse_memory(const request_reader *q);

/* Whether a node is an integer, maybe written as a real: 1.0. */
bool request_is_integer(const json_node *node, int64_t *value);
bool request_is_number(const json_node *node, double *value);
bool request_is_string(const json_node *node, const char *string);

/* Read a member of the body. An absent member leaves *value unchanged. False: the value was refused. */
bool request_read_flag(const request_reader *q, const char *name, bool *value);
bool request_read_integer(const request_reader *q, const char *name, int64_t min, int64_t max,
                          int64_t *value);
bool request_read_number(const request_reader *q, const char *name, double min, double max,
                         double *value);

/* ---- parts of a body; false: refused --------------------------------------------------------- */

bool request_read_fields(request_reader *q);         /* request_fields.c: numbers and flags */
bool request_read_stops(request_reader *q);          /* request_lists.c */
bool request_read_biases(request_reader *q);         /* request_lists.c */
bool request_read_lora(request_reader *q);           /* request_lora.c */
bool request_check_refused(const request_reader *q); /* request_refused.c: unsupported fields */
bool request_read_prompts(request_reader *q);        /* request_prompt.c: prompt and input */
bool request_read_messages(request_reader *q);       /* request_chat.c */

/* ---- adapters: request_lora.c ---------------------------------------------------------------- */

/* Reads a list of ids and scales into a scale for each adapter; adapters that it does not name get 0. */
bool request_read_scales(const json_node *list, int n_adapters, double *scales,
                         request_error *error);

/* ---- prompts: request_prompt.c --------------------------------------------------------------- */

/* Makes room for n_prompts prompts. Refuses more than a request may have. */
bool request_make_prompts(request_reader *q, const char *name, size_t n_prompts);
/* Refuses text if the model has no tokenizer, or if n_bytes are certainly too long for the context. */
bool request_check_text(const request_reader *q, const char *name, size_t n_bytes);
/* Makes ids a prompt, which owns them from then on. Refuses and frees them if the model does not have one of
 * them or the context does not hold them. */
bool request_keep_prompt(const request_reader *q, const char *name, int32_t *ids, size_t n_ids,
                         request_prompt *prompt);
/* Refuses a text that the tokenizer failed to encode. */
bool request_refuse_text(const request_reader *q, const char *name, dsmoe_status status);

#endif
