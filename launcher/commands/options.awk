# What make reads from options.txt. With -v show=words: every variable, and for every target the flags of its program,
# as in train/--nodes="$RM_NODES". With -v show=help: the variables with a star. With -v show=help-all: all of them.

/^\[/ {
    targets = substr($0, 2, index($0, "]") - 2)
    title = substr($0, index($0, "]") + 1)
    heading = targets
    gsub(/ /, ", ", heading)
    if (targets == "any") heading = "every target"
}
/^[A-Z]/ {
    starred = sub(/\*$/, "", $1)
    if (show == "words") words($1)
    else if (show == "help-all") all($1)
    else if (starred) line($1, targets ~ /train/ ? "" : heading ":")
}

function words(name,    each, count, i) {
    if (!known[name]++) print name
    count = split(targets, each, " ")
    for (i = 1; i <= count; i++) printf "%s/--%s=\"$RM_%s\"\n", each[i], flag(name), name
}

function flag(name) {
    name = tolower(name)
    gsub(/_/, "-", name)
    return name
}

function all(name) {
    if (heading title != shown) print "\n" heading (title ? ":" title : "")
    shown = heading title
    line(name, "")
}

# A variable's help, folded at 118 columns; `whose` stands before it.
function line(name, whose,    text, width, i) {
    text = sprintf("  %-14s", name) (whose ? " " whose : "")
    width = length(text)
    for (i = 2; i <= NF; i++) {
        width += 1 + length($i)
        if (width > 118) {
            text = text "\n" sprintf("%16s", "")
            width = 17 + length($i)
        }
        text = text " " $i
    }
    print text
}
