/* gguf_frame.h - the frame: the parts of the released models' tokenizer.json other than its lists of
 * tokens and merges and its pre-tokenizer. A GGUF file has no keys for them. If a tokenizer has the same
 * frame, the arrays in the file express all of it; otherwise the file must hold its text too. */
#ifndef DSMOE_TEXT_GGUF_FRAME_H
#define DSMOE_TEXT_GGUF_FRAME_H

#define GGUF_FRAME_HEAD "\"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null"
#define GGUF_FRAME_NORMALIZER "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": []}"
#define GGUF_FRAME_ENDS                                                                            \
    "\"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true,"                    \
    " \"trim_offsets\": false, \"use_regex\": true},\n"                                            \
    "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true,"                         \
    " \"trim_offsets\": true, \"use_regex\": true}"
#define GGUF_FRAME_MODEL                                                                           \
    "\"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"                       \
    "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"                \
    "    \"fuse_unk\": false,\n    \"byte_fallback\": false"
/* The members of an added token other than "id", "content" and "special". */
#define GGUF_FRAME_ADDED                                                                           \
    "\"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": true"

#endif
