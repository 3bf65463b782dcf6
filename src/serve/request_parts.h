/* request_parts.h - what the files of request.h share: a request that is being read, and single values of it. */
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

/* NULL if it is absent or null, which is the same. */
const json_node *request_member(const json_node *object, const char *name);

/* A value in the words of a message: -1, "a text", an array of 3. */
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

/* Members of the body. An absent one leaves *value as it was; false if it was refused. */
bool request_read_flag(const request_reader *q, const char *name, bool *value);
bool request_read_integer(const request_reader *q, const char *name, int64_t min, int64_t max,
                          int64_t *value);
bool request_read_number(const request_reader *q, const char *name, double min, double max,
                         double *value);

/* ---- parts of a body, each false if something of it was refused ------------------------------ */

bool request_read_fields(request_reader *q); /* request_fields.c: numbers and flags */
bool request_read_stops(request_reader *q);  /* request_lists.c */
bool request_read_biases(request_reader *q); /* request_lists.c */
bool request_read_lora(request_reader *q);   /* request_lora.c */
bool request_check_refused(
    const request_reader *q);                  /* request_refused.c: what cannot be honoured */
bool request_read_prompts(request_reader *q);  /* request_prompt.c: prompt and input */
bool request_read_messages(request_reader *q); /* request_chat.c */

/* ---- adapters: request_lora.c ---------------------------------------------------------------- */

/* A list of ids and scales as a scale for each adapter, 0 for those that it does not name. */
bool request_read_scales(const json_node *list, int n_adapters, double *scales,
                         request_error *error);

/* ---- prompts: request_prompt.c --------------------------------------------------------------- */

/* Room for so many, if that is not too much for the request. */
bool request_make_prompts(request_reader *q, const char *name, size_t n_prompts);
/* Whether a text may be encoded: there is a tokenizer, and no text of this size is sure to be too long. */
bool request_check_text(const request_reader *q, const char *name, size_t n_bytes);
/* Ids become a prompt if the model knows each and the context holds them; they are freed in any case where
 * they do not. */
bool request_keep_prompt(const request_reader *q, const char *name, int32_t *ids, size_t n_ids,
                         request_prompt *prompt);
/* Refuses with what is wrong with a text that an encoder gave up on. */
bool request_refuse_text(const request_reader *q, const char *name, dsmoe_status status);

#endif
