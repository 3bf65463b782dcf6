#!/bin/sh
# check_earlier_cli.sh DSMOE DATA - files of an earlier version, with other hashes, can still be read:
# DATA/earlier has a run, and a run of low-rank adapters for its model, both stopped after 2 of 4 steps.
. "$(dirname "$0")/cli_checks.sh"

fresh() { # both runs in their original state, with the paths in them adjusted
    rm -rf "$scratch/earlier"
    cp -R "$data/earlier" "$scratch/"
    sed -i "s|/tmp/earlier|$scratch/earlier|" "$scratch"/earlier/*/settings.json
}
resume() { # expected exit code, which of the runs
    run "$1" train --resume "$scratch/earlier/$2" -t 2
}
flip() { # changes the last byte of a file
    size=$(($(wc -c <"$1") - 1))
    head -c "$size" "$1" >"$1.new"
    printf '\377' >>"$1.new"
    mv "$1.new" "$1"
}

# ---- both runs continue with the existing data cache
for name in run tune; do
    fresh
    resume 0 $name
    says "step 4/4"
    cmp -s "$scratch/earlier/$name/data.cache" "$data/earlier/$name/data.cache" ||
        complain "the data cache was made once more"
    grep -qa '"dsmoe training state 4"' "$scratch/earlier/$name/latest/training.safetensors" ||
        complain "the new checkpoint is not of the new format"
    run 0 train --resume "$scratch/earlier/$name" --steps 6
    says "step 6/6"
done

# ---- or with a new cache of the same text, but not with another text
fresh
rm "$scratch/earlier/run/data.cache"
resume 0 run
fresh
rm "$scratch/earlier/run/data.cache"
echo "One more." >>"$scratch/earlier/text/sums.txt"
resume 1 run
one_message "the data have changed since this run began"

# ---- damage is found with the old hashes
for file in model.safetensors training.safetensors config.json; do
    fresh
    flip "$scratch/earlier/run/checkpoints/step-00000002/$file"
    resume 1 run
    says "$file" damaged
done
fresh
flip "$scratch/earlier/run/data.cache"
resume 0 run
cmp -s "$scratch/earlier/run/data.cache" "$data/earlier/run/data.cache" &&
    complain "the damaged data cache was used"

# ---- and so is a changed base model
fresh
flip "$scratch/earlier/run/checkpoints/step-00000002/model.safetensors"
resume 1 tune
one_message "is not the model that this run began with"

exit $failed
