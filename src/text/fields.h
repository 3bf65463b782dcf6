/* fields.h - members of the JSON objects that describe a tokenizer. `where` names the object in messages;
 * the caller puts the name of the file in front. */
#ifndef DSMOE_TEXT_FIELDS_H
#define DSMOE_TEXT_FIELDS_H

#include "formats/json.h"

/* The member, NULL if it is absent or null. */
const json_node *field_node(const json_node *object, const char *key);
dsmoe_status field_flag(const json_node *object, const char *where, const char *key, bool absent,
                        bool *value, dsmoe_error *error);
/* *string is NULL if the member is absent or null. */
dsmoe_status field_string(const json_node *object, const char *where, const char *key,
                          const char **string, size_t *length, dsmoe_error *error);
/* Finds a member of a given kind that must be there. */
dsmoe_status field_need(const json_node *object, const char *where, const char *key, json_kind kind,
                        const json_node **node, dsmoe_error *error);
/* Reads the string "type" of an object; anything else is an error. */
dsmoe_status field_type(const json_node *object, const char *where, const char **type,
                        dsmoe_error *error);

#endif
