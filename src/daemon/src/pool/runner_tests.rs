//! What images are taken for, by their labels.

use super::*;

#[test]
fn an_image_for_another_machine_is_foreign() {
    let image = |architecture: &str| ImageDetail {
        id: "paddock".parse().unwrap(),
        repo_tags: vec!["runner:latest".into()],
        created: String::new(),
        architecture: architecture.into(),
        config: crate::engine::ImageConfig::default(),
    };
    assert_eq!(foreign_to("amd64", &image("amd64")), None);
    assert_eq!(foreign_to("amd64", &image("")), None, "the image does not say");
    assert_eq!(
        foreign_to("amd64", &image("arm64")).unwrap(),
        "image runner is left out: it is made for arm64, and the engine's machine is amd64; build or \
         pull it for linux/amd64"
    );
}

#[test]
fn an_image_is_a_coding_agent_by_its_label_or_by_the_name_that_was_chosen_for_it() {
    let image = |labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        ImageDetail {
            id: "paddock".parse().unwrap(),
            repo_tags: Vec::new(),
            created: String::new(),
            architecture: String::new(),
            config: crate::engine::ImageConfig { labels, ..Default::default() },
        }
    };
    let (agent, language) = ((CODING_AGENT, "codex"), (LANGUAGE, "sh"));
    for (name, labels, expected) in [
        ("codex", &[agent] as &[_], true),
        ("codex", &[agent, language], true),
        ("sh", &[language], false),
        ("sh", &[], false),
        ("opencode", &[], true),
        ("opencode", &[language], false),
    ] {
        assert_eq!(is_coding_agent(name, &image(labels)), expected, "{name} {labels:?}");
    }
    assert_eq!(name_of_runner(&image(&[agent, language])), (CODING_AGENT, Some(&"codex".to_owned())));
    assert_eq!(name_of_runner(&image(&[language])), (LANGUAGE, Some(&"sh".to_owned())));
    assert_eq!(name_of_runner(&image(&[])), (LANGUAGE, None));
}

#[test]
fn a_list_has_commas_or_white_space_between_its_entries() {
    let read = |label: &str| list(Some(&label.to_owned()));
    assert_eq!(list(None), [""; 0]);
    assert_eq!(read(" ,"), [""; 0]);
    assert_eq!(read("rg, /usr/bin/git"), ["rg", "/usr/bin/git"]);
    assert_eq!(read("a b,c").len(), 3);
    assert_eq!(read(&"x,".repeat(1000)).len(), MAX_ENTRIES);
}

#[test]
fn a_warm_part_is_a_command_or_none() {
    let command = |words: &[&str]| Ok(words.iter().map(|word| (*word).to_owned()).collect());
    assert_eq!(warm(""), command(&[]));
    assert_eq!(warm(r#"["/bin/a", "b c"]"#), command(&["/bin/a", "b c"]));
    for label in ["/bin/a", "[]", "[1]", "{}", "\"/bin/a\"", r#"["a\u0000b"]"#] {
        assert!(warm(label).unwrap_err().contains("JSON array"), "{label}");
    }
}
