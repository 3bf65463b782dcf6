/* gguf_pre_tokenizer.c - the cuts of public tokenizers, which a GGUF file only names. */
#include "text/gguf_pre_tokenizer.h"

#define SPLIT(regex)                                                                               \
    "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" regex                                      \
    "\"}, \"behavior\": \"Isolated\", \"invert\": false}, "
#define DIGITS "{\"type\": \"Digits\", \"individual_digits\": true}, "
/* A sequence of cuts, ending with ByteLevel. */
#define CUTS(cuts)                                                                                 \
    "{\"type\": \"Sequence\", \"pretokenizers\": [" cuts                                           \
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true,"               \
    " \"use_regex\": false}]}"

#define EAST_ASIAN "\\u4e00-\\u9fa5\\u0800-\\u4e00\\uac00-\\ud7ff"

/* ---- deepseek-llm: line ends; letters of scripts with case, and punctuation, each with the space before it;
 * spaces at the end of a text; East Asian letters; each digit by itself ---- */

#define LETTERS                                                                                    \
    "A-Za-z\\u00b5\\u00c0-\\u00d6\\u00d8-\\u00f6\\u00f8-\\u01ba\\u01bc-\\u01bf\\u01c4-"            \
    "\\u0293\\u0295-\\u02af\\u0370-\\u0373\\u0376\\u0377\\u037b-\\u037d\\u037f\\u0386"             \
    "\\u0388-\\u038a\\u038c\\u038e-\\u03a1\\u03a3-\\u03f5\\u03f7-\\u0481\\u048a-\\u052f"           \
    "\\u0531-\\u0556\\u10a0-\\u10c5\\u13a0-\\u13f5\\u13f8-\\u13fd\\u1c90-\\u1cba\\u1cbd-"          \
    "\\u1cbf\\u1d00-\\u1d2b\\u1d6b-\\u1d77\\u1d79-\\u1d9a\\u1e00-\\u1f15\\u1f18-\\u1f1d"           \
    "\\u1f20-\\u1f45\\u1f48-\\u1f4d\\u1f50-\\u1f57\\u1f59\\u1f5b\\u1f5d\\u1f5f-\\u1f7d"            \
    "\\u1f80-\\u1fb4\\u1fb6-\\u1fbc\\u1fbe\\u1fc2-\\u1fc4\\u1fc6-\\u1fcc\\u1fd0-\\u1fd3"           \
    "\\u1fd6-\\u1fdb\\u1fe0-\\u1fec\\u1ff2-\\u1ff4\\u1ff6-\\u1ffc\\u2102\\u2107\\u210a-"           \
    "\\u2113\\u2115\\u2119-\\u211d\\u2124\\u2126\\u2128\\u212a-\\u212d\\u212f-\\u2134"             \
    "\\u2139\\u213c-\\u213f\\u2145-\\u2149\\u214e\\u2183\\u2184\\u2c00-\\u2c7b\\u2c7e-"            \
    "\\u2ce4\\u2ceb-\\u2cee\\u2cf2\\u2cf3\\ua640-\\ua66d\\ua680-\\ua69b\\ua722-\\ua76f"            \
    "\\ua771-\\ua787\\ua78b-\\ua78e\\uab70-\\uabbf\\ufb00-\\ufb06\\ufb13-\\ufb17\\uff21-"          \
    "\\uff3a\\uff41-\\uff5a\\ud801\\udc00-\\ud801\\udc4f\\ud801\\udcb0-\\ud801\\udcd3"             \
    "\\ud801\\udcd8-\\ud801\\udcfb\\ud803\\udc80-\\ud803\\udcb2\\ud803\\udcc0-"                    \
    "\\ud803\\udcf2\\ud806\\udca0-\\ud806\\udcdf\\ud83a\\udd00-\\ud83a\\udd43"
#define PUNCTUATION "!-/:-~\\uff01-\\uff0f\\uff1a-\\uff5e\\u2018-\\u201f\\u3000-\\u3002"
#define DEEPSEEK_LLM                                                                               \
    SPLIT("[\\r\\n]")                                                                              \
    SPLIT("\\\\s?[" LETTERS "]+")                                                                  \
    SPLIT("\\\\s?[" PUNCTUATION "]+") SPLIT("\\\\s+$") SPLIT("[" EAST_ASIAN "]+") DIGITS

/* ---- deepseek-coder: the same with all letters and all punctuation, and no spaces at the end ---- */

#define DEEPSEEK_CODER                                                                             \
    SPLIT("[\\r\\n]")                                                                              \
    SPLIT("\\\\s?\\\\p{L}+") SPLIT("\\\\s?\\\\p{P}+") SPLIT("[" EAST_ASIAN "]+") DIGITS

/* ---- deepseek-v3: up to three digits; Chinese and Japanese; then a sign before Latin letters, words with
 * the character before them, signs, line ends and blanks ---- */

#define DEEPSEEK_V3                                                                                \
    SPLIT("\\\\p{N}{1,3}")                                                                         \
    SPLIT("[\\u4e00-\\u9fa5\\u3040-\\u309f\\u30a0-\\u30ff]+")                                      \
    SPLIT("[!\\\"#$%&'()*+,\\\\-./:;<=>?@\\\\[\\\\\\\\\\\\]^_`{|}~][A-Za-z]+|"                     \
          "[^\\r\\n\\\\p{L}\\\\p{P}\\\\p{S}]?[\\\\p{L}\\\\p{M}]+| ?[\\\\p{P}\\\\p{S}]+[\\r\\n]*|"  \
          "\\\\s*[\\r\\n]+|\\\\s+(?!\\\\S)|\\\\s+")

/* ---- kimi-k2, which is Moonlight's: Han; words that begin with capitals or are of small letters, with the
 * character before them and an English ending; up to three digits; signs, line ends and blanks ---- */

#define NOT_HAN(classes) "(?:(?!\\\\p{Han})[" classes "])"
#define UPPER NOT_HAN("\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}")
#define LOWER NOT_HAN("\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}")
#define BEFORE "[^\\r\\n\\\\p{L}\\\\p{N}]?"
#define ENDING "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define KIMI_K2                                                                                    \
    SPLIT("\\\\p{Han}+|" BEFORE UPPER "*" LOWER "+" ENDING "|" BEFORE UPPER "+" LOWER "*" ENDING   \
          "|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\r\\n]*|\\\\s*[\\r\\n]+|"                   \
          "\\\\s+(?!\\\\S)|\\\\s+")

const gguf_pre_tokenizer gguf_pre_tokenizers[] = {
    {"deepseek-llm", CUTS(DEEPSEEK_LLM)},
    {"deepseek-coder", CUTS(DEEPSEEK_CODER)},
    {"deepseek-v3", CUTS(DEEPSEEK_V3)},
    {"kimi-k2", CUTS(KIMI_K2)},
};
const size_t n_gguf_pre_tokenizers = sizeof gguf_pre_tokenizers / sizeof *gguf_pre_tokenizers;
