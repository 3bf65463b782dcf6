/* dialogue.h - a line of JSON in the forms that data for fine-tuning come in:
 *
 *   text            {"text": "…"}
 *   prompt          {"prompt": "…", "completion": "…"}, or lists of messages in place of the strings
 *   messages        {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}
 *   conversations   {"conversations": [{"from": "human", "value": "…"}, {"from": "gpt", "value": "…"}]}
 *   instruction     {"instruction": "…", "output": "…"}, with "input", "system" and "history" if need be
 *   preferences     {"prompt": "…", "chosen": "…", "rejected": "…"}, or lists of messages in place of the strings; without
 *                   a prompt, or with a string for one, two lists are whole conversations, whose common beginning it is
 *
 * The keys distinguish them; other keys are ignored. A line that is complete in two forms is refused, as only its
 * author knows which one is meant. null is the same as no value where none is needed. */
#ifndef DSMOE_FORMATS_DIALOGUE_H
#define DSMOE_FORMATS_DIALOGUE_H

#include "formats/json.h"

typedef struct dialogue_message {
    const char *role; /* "system", "user" or "assistant" */
    const char *text; /* ended by a NUL, which is in no text */
    size_t length;
    bool is_answer; /* to be learnt: something that the assistant says, unless "mask" is 1 */
} dialogue_message;

typedef struct dialogue {
    dialogue_message *messages;
    size_t n_messages;
    bool is_plain; /* a prompt and a completion, two texts without a frame around them */
    /* Of a preference: so many messages are the prompt and what was chosen; the others are the prompt once more and
     * what was rejected. 0: it is none. */
    size_t n_chosen;
    char **joined; /* texts that are not in the line as they are */
    size_t n_joined;
} dialogue;

/* What a line holds: a text, or a conversation. Its texts live as long as the node. The conversation is to be freed,
 * also after a failure. */
typedef struct dialogue_line {
    const char *text; /* NULL: a conversation */
    size_t length;    /* of the text, or of all texts of the conversation */
    dialogue conversation;
} dialogue_line;
dsmoe_status dialogue_read(const json_node *node, dialogue_line *line, dsmoe_error *error);
void dialogue_free(dialogue *conversation); /* allowed on zeros */

#endif
