/* dialogue.h - a line of JSON in the usual forms of data for fine-tuning:
 *
 *   text            {"text": "…"}
 *   prompt          {"prompt": "…", "completion": "…"}, or lists of messages in place of the strings
 *   messages        {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}
 *   conversations   {"conversations": [{"from": "human", "value": "…"}, {"from": "gpt", "value": "…"}]}
 *   instruction     {"instruction": "…", "output": "…"}, with "input", "system" and "history" if need be
 *   preferences     {"prompt": "…", "chosen": "…", "rejected": "…"}, or lists of messages in place of the
 *                   strings; without a prompt, or with a string as prompt, the two lists are whole
 *                   conversations, and their common beginning is the prompt
 *
 * The keys tell the forms apart; other keys are ignored. A line with the keys of two forms is refused, since
 * only its author knows which one is meant. For optional keys, null is the same as no value. */
#ifndef DSMOE_FORMATS_DIALOGUE_H
#define DSMOE_FORMATS_DIALOGUE_H

#include "formats/json.h"

typedef struct dialogue_message {
    const char *role; /* "system", "user" or "assistant" */
    const char *text; /* ends with a NUL and contains no other */
    size_t length;
    bool is_answer; /* to be learned: a message of the assistant, unless its "mask" is 1 */
} dialogue_message;

typedef struct dialogue {
    dialogue_message *messages;
    size_t n_messages;
    bool is_plain; /* a prompt and a completion: plain texts without a chat form around them */
    /* In a preference, the first n_chosen messages are the prompt and the chosen answer. The others are the
     * prompt again and the rejected answer. 0: not a preference. */
    size_t n_chosen;
    char **joined; /* texts that were put together from several of the line */
    size_t n_joined;
} dialogue;

/* A line holds a text or a conversation. Its texts live as long as the JSON node. The caller must free the
 * conversation, even after a failure. */
typedef struct dialogue_line {
    const char *text; /* NULL: a conversation */
    size_t length;    /* of the text, or of all texts of the conversation */
    dialogue conversation;
} dialogue_line;
dsmoe_status dialogue_read(const json_node *node, dialogue_line *line, dsmoe_error *error);
void dialogue_free(dialogue *conversation); /* allowed on zeros */

#endif
