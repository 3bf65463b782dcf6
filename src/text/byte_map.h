/* byte_map.h - the alphabet of byte-level vocabularies: each of the 256 bytes has a printable
 * character. Printable Latin-1 stands for itself, the other 68 bytes are U+0100 and up in order. */
#ifndef DSMOE_TEXT_BYTE_MAP_H
#define DSMOE_TEXT_BYTE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The byte a character stands for, -1 if it is not in the alphabet. */
int byte_map_byte(uint32_t code);

/* The bytes that a token of a vocabulary spells, at most `length` of them; false if a character is
 * not in the alphabet. */
bool byte_map_decode(const char *key, size_t length, char *bytes, size_t *n_bytes);

#endif
