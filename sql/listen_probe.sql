listen "$probe"
